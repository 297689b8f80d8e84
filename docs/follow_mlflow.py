#!/usr/bin/env python3
"""Sends a run's log to MLflow while it is written: python3 docs/follow_mlflow.py RUN [EXPERIMENT]"""
import json
import pathlib
import sys

import mlflow

import xformer

run = pathlib.Path(sys.argv[1])
lines = xformer.follow(run)
next(lines)  # waits until the run has begun and written its plan
plan = json.loads((run / "plan.json").read_text())
mlflow.set_experiment(sys.argv[2] if len(sys.argv) > 2 else "xformer")
with mlflow.start_run(run_name=str(run)):
    mlflow.log_params(plan)
    for line in lines:
        event, step = line.pop("event"), line.pop("step", 0)
        numbers = {f"{event}/{name}": value for name, value in line.items() if type(value) in (int, float)}
        if numbers:
            mlflow.log_metrics(numbers, step=step)
