#!/usr/bin/env python3
# %% [markdown]
# # xformer in a notebook
#
# Cells (`# %%`) for VS Code, Spyder, PyCharm or `jupytext --to notebook`; also a script:
#
#     PYTHONPATH=apps/python python3 docs/python_example.py
#
# Needs numpy, safetensors and pandas; draws where there is matplotlib. It trains two small models in seconds, below
# `runs/notebook`.

# %%
import pathlib
import sys

try:
    import numpy as np
    import pandas as pd
    import safetensors  # noqa: F401 (xformer reads weights with it)
except ImportError as missing:
    print(f"skipped: {missing}; python3 -m pip install numpy safetensors pandas")
    sys.exit(77)

import xformer

folder = pathlib.Path("runs/notebook")

# %% [markdown]
# ## Training
#
# Two models tell in which order two symbols came, in sequences of 32. Lines arrive while the program trains. Run again,
# the cell begins anew; without `overwrite` a finished run is told again and a stopped one gone on with.

# %%
small = {"model.dim": 32, "model.head_dim": 16, "model.ff_dim": 32, "data.train_examples": 512,
         "data.dev_examples": 64, "data.test_examples": 64, "training.eval_epochs": 0}
for model in ("linear", "none"):
    for line in xformer.train(folder / model, model=model, task="temporal-order", length=32, batch=16, steps=60,
                              eval_every=20, log_every=5, threads=1, overwrite=True, set=small):
        if line["event"] == "dev":
            print(f"{model}: step {line['step']}, dev accuracy {line['accuracy']:.3f}")

# %% [markdown]
# ## Logs and records

# %%
logs = pd.concat([xformer.log(folder / model).assign(model=model) for model in ("linear", "none")])
print(logs[logs.event == "train"].pivot(index="step", columns="model", values="loss").tail(3))

table = xformer.records(folder)
print(table[["model", "status", "test.accuracy", "chance", "parameters", "plan.training.batch"]].to_string(index=False))

# %% [markdown]
# ## Curves

# %%
try:
    import matplotlib
    matplotlib.use("Agg")  # leave this line out in a notebook
    import matplotlib.pyplot as plt
except ImportError:
    print("no matplotlib: no picture")
else:
    figure, axes = plt.subplots()
    for model, lines in logs[logs.event == "train"].groupby("model"):
        axes.plot(lines.step, lines.loss, label=model)
    axes.set(xlabel="step", ylabel="training loss")
    axes.legend()
    figure.savefig(folder / "curves.png")
    print(f"drew {folder / 'curves.png'}")

# %% [markdown]
# ## Weights

# %%
weights = xformer.load_state(folder / "linear", framework="numpy")
size = sum(array.size for array in weights.values())
print(f"{len(weights)} tensors, {size} numbers; tokens: {weights['tokens'].shape}")

# %% [markdown]
# ## One attention on tensors of ours, beside its formula

# %%
numbers = np.random.default_rng(0)
q, k, v = (numbers.standard_normal((2, 2, 10, 4)) for _ in range(3))
mask = np.arange(10) < np.array([[10], [6]])
scores = np.where(mask[:, None, None, :], q @ k.swapaxes(-1, -2) / np.sqrt(4), -np.inf)
weights_by_hand = np.exp(scores - scores.max(-1, keepdims=True))
by_hand = weights_by_hand / weights_by_hand.sum(-1, keepdims=True) @ v
ours = xformer.forward("softmax", q, k, v, mask)["output"]
valid = mask[:, None, :, None]
difference = np.abs((ours - by_hand) * valid).max()
print(f"softmax, largest difference: {difference:.1e}")
assert difference < 1e-12
