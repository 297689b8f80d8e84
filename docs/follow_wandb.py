#!/usr/bin/env python3
"""Sends a run's log to Weights & Biases while it is written: python3 docs/follow_wandb.py RUN [PROJECT]"""
import json
import pathlib
import sys

import wandb

import xformer

run = pathlib.Path(sys.argv[1])
lines = xformer.follow(run)
next(lines)  # waits until the run has begun and written its plan
plan = json.loads((run / "plan.json").read_text())
wandb.init(project=sys.argv[2] if len(sys.argv) > 2 else "xformer", name=str(run), group=plan["task"], config=plan)
for line in lines:
    event, step = line.pop("event"), line.pop("step", 0)
    numbers = {f"{event}/{name}": value for name, value in line.items() if type(value) in (int, float)}
    if numbers:
        wandb.log(numbers, step=step)
wandb.finish()
