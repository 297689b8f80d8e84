"""measure.py RECORD COMMAND...: runs a command whose answer is JSON and writes it with its time and most memory."""

import json
import pathlib
import resource
import subprocess
import sys
import time

record, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
# As the program's own records have it: no path of a machine.
words = ["<data>" if before == "--data" else word for before, word in zip(["", *command[1:]], command[1:])]
program = subprocess.run([command[0], "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
start = time.monotonic()
done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
seconds = time.monotonic() - start
if done.returncode != 0:
    sys.exit(done.returncode)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
record.write_text(json.dumps({
    "command": " ".join(["xformer", *words]),
    "program": program,
    "seconds": seconds, "processor_seconds": used.ru_utime + used.ru_stime, "peak_process_bytes": 1024 * used.ru_maxrss,
    "answer": json.loads(done.stdout)}, indent=2) + "\n")
