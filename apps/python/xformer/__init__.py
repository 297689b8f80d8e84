"""xformer from Python: runs the program, and reads what its runs leave (docs/python.md).

    import xformer

    for line in xformer.train("runs/a", model="linear", task="temporal-order", steps=600, batch=32):
        print(line)                                # the lines of runs/a/log.jsonl, as they are written
    xformer.log("runs/a")                          # the same as a pandas data frame
    xformer.records("runs", "results/runs")        # a row for every record
    xformer.load_state("runs/a")["tokens"]         # the selected weights, as tensors
    xformer.forward("linformer", q, k, v, mask, seed=0, set={"attention.projected_len": 16})["output"]

Nothing is computed here: every number is the program's. `python -m xformer WORDS` is `xformer WORDS`.
"""

from xformer._forward import forward
from xformer._program import Error
from xformer._runs import follow, load_state, log, records
from xformer._train import train

__all__ = ["Error", "follow", "forward", "load_state", "log", "records", "train"]
