#!/usr/bin/env python3
"""shift_table.py PROGRAM RUNS DATA: the shift test of what transactions.json trained, as a Markdown table.

RUNS is the sweep's folder of runs, DATA the dataset's folder. Every run's test data are read as they are, rolled by one
event and without the newest event (`xformer eval --shift`). A difference is the mean over seeds of a run's own, with the
95 % interval of a mean by Student's t.
"""
import json
import math
import pathlib
import statistics
import subprocess
import sys

T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # by number of runs
SHIFTS = ("roll", "drop-newest")


def gini(program, run, data, shift):
    command = [program, "eval", str(run), "--data", data, "--json", "--threads", "1", *(["--shift", shift] if shift else [])]
    return 100 * json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["gini"]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    program, runs, data = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    groups = {}
    for place in sorted(runs.rglob("record.json")):
        record = json.loads(place.read_text())
        groups.setdefault((record["name"], record["plan"]["data.cyclic_shift"]), []).append(place.parent)
    print("| model | trained with rolls | Gini, % | rolled by one event | newest event dropped |")
    print("| --- | --- | ---: | ---: | ---: |")
    for (model, rolls), places in sorted(groups.items()):
        base = [gini(program, run, data, None) for run in places]
        cells = [f"{statistics.mean(base):.1f} ± {statistics.stdev(base):.1f}"]
        for shift in SHIFTS:
            changes = [gini(program, run, data, shift) - before for run, before in zip(places, base)]
            half = T_975[len(changes)] * statistics.stdev(changes) / math.sqrt(len(changes))
            cells.append(f"{statistics.mean(changes):+.1f} ({statistics.mean(changes) - half:.1f} to "
                         f"{statistics.mean(changes) + half:.1f})")
        print(f"| {model} | {'yes' if rolls else 'no'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
