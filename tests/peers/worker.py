#!/usr/bin/env python3
"""One PyTorch model in one process, a training step for every line on standard input.

    worker.py --attention NAME --length N --batch B --threads T [--compile | --products] ...

A step is forward, backward, AdamW and the one-cycle schedule on random tokens. After set-up and warm-up one line of JSON
says that it is ready, then every line read is answered by one with the milliseconds and the most memory the process
had so far. With --products a "step" is the model's matrix products alone, each on its own shapes and strides into
kept memory: what the machine could do of the step if there were nothing else. That process also counts the step's FLOPs
(torch.utils.flop_counter; 1 multiply-add = 2).
"""

import argparse
import collections
import json
import pathlib
import resource
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import models

PRODUCTS = {torch.ops.aten.mm.default: (0, 1), torch.ops.aten.bmm.default: (0, 1),
            torch.ops.aten.addmm.default: (1, 2), torch.ops.aten.baddbmm.default: (1, 2)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attention", required=True, choices=sorted(models.ATTENTIONS))
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--valid", type=pathlib.Path, help="JSON list of the rows' valid lengths; default: all valid")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--products", action="store_true", help="its matrix products alone; counts FLOPs")
    parser.add_argument("--warmup", type=int, default=2, help="steps that are not timed, the first included")
    return parser.parse_args()


class Trainer:
    def __init__(self, given):
        torch.manual_seed(1)
        lengths = json.loads(given.valid.read_text()) if given.valid else [given.length] * given.batch
        if len(lengths) != given.batch or not all(1 <= length <= given.length for length in lengths):
            raise SystemExit(f"--valid: expected {given.batch} lengths from 1 to {given.length}, got {lengths}")
        sizes = models.Sizes(given.length, given.dropout, given.attention_dropout, min(lengths) == given.length)
        self.mask = (torch.arange(given.length) < torch.tensor(lengths)[:, None]).float()
        self.tokens = torch.randint(1, sizes.vocabulary, (given.batch, given.length)) * self.mask.long()
        self.labels = torch.randint(0, sizes.classes, (given.batch,))
        model = models.Encoder(given.attention, sizes)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 1e-4, total_steps=1_000_000,
                                                            anneal_strategy="linear", cycle_momentum=False)
        self.model = torch.compile(model) if given.compile else model

    def step(self):
        loss = torch.nn.functional.cross_entropy(self.model(self.tokens, self.mask), self.labels)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()


class ProductRecorder(TorchDispatchMode):
    """Counts the matrix products that run while it is on, by operator, shapes and strides."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator in PRODUCTS:
            left, right = (args[i] for i in PRODUCTS[operator])
            self.counts[tuple((tuple(x.shape), x.stride()) for x in (left, right))] += 1
        return operator(*args, **(kwargs or {}))


class Products:
    """What a recorder counted, as products to be done."""

    def __init__(self, counts):
        self.flops, self.work, kept = 0, [], {}

        def operand(shape, stride):  # one piece of memory for all that look alike
            if (shape, stride) not in kept:
                kept[shape, stride] = torch.empty_strided(shape, stride)
                kept[shape, stride].untyped_storage().fill_(0)  # a stride may be 0: elements lie upon each other
            return kept[shape, stride]

        for (left, right), count in counts.items():
            shape = (*left[0][:-1], right[0][-1])
            size = 2 * left[0][-1] * torch.Size(shape).numel()
            self.flops += count * size
            result = operand(shape, torch.empty(shape, device="meta").stride())
            self.work += [(operand(*left), operand(*right), result)] * count

    def step(self):
        for left, right, result in self.work:
            torch.matmul(left, right, out=result)


def main():
    given = arguments()
    started = time.monotonic()
    torch.set_num_threads(given.threads)
    subject = Trainer(given)
    ready = {"event": "ready", "parameters": subject.parameters, "torch": torch.__version__}
    if given.products:
        with FlopCounterMode(display=False) as counter, ProductRecorder() as recorder:
            subject.step()
        subject = Products(recorder.counts)
        ready |= {"step_flops": counter.get_total_flops(), "product_flops": subject.flops}
    else:
        subject.step()

    def step():
        begin = time.perf_counter()
        with torch.no_grad() if given.products else torch.enable_grad():
            subject.step()
        return 1e3 * (time.perf_counter() - begin)

    def answer(line):
        line["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps(line), flush=True)

    for _ in range(given.warmup - 1):
        step()
    answer(ready | {"setup_seconds": time.monotonic() - started})
    for _ in sys.stdin:
        answer({"event": "step", "ms": step()})


if __name__ == "__main__":
    main()
