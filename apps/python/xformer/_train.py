"""Training by the program, told line by line."""

from __future__ import annotations

import pathlib
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import IO

from xformer._program import Error, Value, environment, message, program, words
from xformer._runs import PathLike, Row, lines


def train(run: PathLike, **options: Value) -> Iterator[Row]:
    """Starts `xformer train --out RUN` and yields the lines of its log.jsonl (docs/record.md) as they are written.

    `options` are those of `xformer train --help`, with `_` for `-`:

        train("runs/a", model="linformer", task="listops", steps=200, set={"attention.projected_len": 64})

    The run begins at once, whether or not anybody reads. A run that is there is gone on with, or told again if it is
    finished: lines come from the log's first. Who leaves the loop (or interrupts it) stops the run at its next step,
    saved; the same call goes on.

    Raises Error, with the program's words and exit code, when it refuses or fails; its warnings are Python's warnings.
    """
    begun = time.time()
    said = tempfile.TemporaryFile()
    command = [program(), "train", *words({"quiet": True, **options, "out": run})]
    try:
        process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=said)
    except OSError as error:
        raise Error(4, f"{command[0]} cannot be started: {error.strerror}") from error
    return _told(process, said, pathlib.Path(run) / "log.jsonl", begun)


def _told(process: subprocess.Popen[bytes], said: IO[bytes], log: pathlib.Path, begun: float) -> Iterator[Row]:
    try:
        yield from lines(log, lambda: process.poll() is None, since=begun)
    finally:
        if process.poll() is None:
            process.terminate()  # it saves first
        process.wait()
    said.seek(0)
    text = said.read().decode(errors="replace")
    if process.returncode != 0:
        raise Error(process.returncode, message(process.returncode, text))
    for line in text.splitlines():
        if line.startswith("warning: "):
            warnings.warn(line.removeprefix("warning: "), stacklevel=3)
