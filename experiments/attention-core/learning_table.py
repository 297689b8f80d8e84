#!/usr/bin/env python3
"""One Markdown table from the runs of experiments/attention-core/learn.json.

    learning_table.py results/runs/attention-core/learn > results/tables/attention-learning.md

The folder holds run directories, a record and a log each, and data.json, what `xformer data check` says of their data. A
pass over the 64 examples is four steps, and so is a line of the log: its loss is the mean over all of them. The entropy
of their labels is what the best constant answer reaches; a name has learned when its last loss is at least 5% below.
"""

import json
import math
import pathlib
import sys

REPORTED_ONLY = {"none", "mrs-none"}  # no token sees another: nothing is claimed of it


def table_of(folder):
    data = json.loads((folder / "data.json").read_text())
    counts = data["splits"]["train"]["labels"]
    entropy = -sum(count / sum(counts) * math.log(count / sum(counts)) for count in counts if count)
    rows, failed, steps = [], [], set()
    for path in sorted(folder.glob("listops/*/*/0/record.json")):
        record = json.loads(path.read_text())
        lines = [json.loads(line) for line in (path.parent / "log.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in lines if line["event"] == "train"]
        learned = losses[-1] <= 0.95 * entropy
        name = record["model"]
        if not learned and name not in REPORTED_ONLY:
            failed.append(name)
        code = record["software"]["commit"][:7] + (", modified" if record["software"]["dirty"] else "")
        steps.add(record["steps"]["done"])
        verdict = "reported only" if name in REPORTED_ONLY else "yes" if learned else "no"
        rows.append(
            f"| `{name}` | {losses[0]:.3f} | {losses[-1]:.3f} | {verdict} | "
            f"{record['peak_device_bytes'] / 1e6:.0f} | {record['flops']['training_per_example'] / 1e6:.1f} | "
            f"{record['parameters']:,} | {code}, {record['date'][:10]} |"
        )
    if not rows:
        sys.exit(f"no records under {folder}")
    print("# Every attention trained on 64 ListOps examples\n")
    print(
        f"Made by `experiments/attention-core/learn.json`: lengths 512 to 600 in batches of 16 padded to 1,024, dropout off, AdamW "
        f"at a constant 1e-3, {', '.join(map(str, sorted(steps)))} steps for all. A loss is the mean over one pass of the 64 "
        f"examples. Entropy of their labels: {entropy:.3f}; learned means at most {0.95 * entropy:.3f}. Memory is what "
        f"tensors took at most, by the program that the last column names.\n"
    )
    print("| model | first loss | last loss | learned | peak MB | MFLOP per example and step | parameters | code |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | --- |")
    print("\n".join(rows))
    if failed:
        print(f"\nNot learned at this budget: {', '.join(failed)}.")


table_of(pathlib.Path(sys.argv[1]))
