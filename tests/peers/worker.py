#!/usr/bin/env python3
"""One PyTorch model in one process, a training step for every line on standard input.

    worker.py --attention NAME --length N --batch B --threads T [--device cuda] [--compile [MODE] | --products] ...

A step is forward, backward, AdamW and the one-cycle schedule on random tokens, which on a GPU are copied there from pinned
memory. There as many steps as take 50 ms are queued one behind the other and timed together, by the host's clock and by events on
the device, as `xformer bench` does. bf16 and fp16 are autocast's, fp16 with a GradScaler. After set-up and warm-up one line of JSON
says that it is ready, then every line read is answered by one with the milliseconds and the most memory the process
had so far. With --products a "step" is the model's matrix products alone, each by the library that is fastest at it
(products.py): what the machine could do of the step if there were nothing else. That process also counts the step's
FLOPs (torch.utils.flop_counter; 1 multiply-add = 2) and says which part of them which library takes.
"""

import argparse
import collections
import json
import math
import pathlib
import resource
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import models
import products

PRODUCTS = {torch.ops.aten.mm.default: (0, 1), torch.ops.aten.bmm.default: (0, 1),
            torch.ops.aten.addmm.default: (1, 2), torch.ops.aten.baddbmm.default: (1, 2)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attention", required=True, choices=sorted([*models.ATTENTIONS, *models.LAYERS]))
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    parser.add_argument("--valid", type=pathlib.Path, help="JSON list of the rows' valid lengths; default: all valid")
    parser.add_argument("--language", action="store_true", help="a causal decoder of bytes, with a label at every place")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16", "fp16"])
    parser.add_argument("--compile", nargs="?", const="default", metavar="MODE", help="torch.compile the model")
    parser.add_argument("--products", action="store_true", help="its matrix products alone; counts FLOPs")
    parser.add_argument("--warmup", type=int, default=2, help="steps that are not timed, the first included")
    return parser.parse_args()


class Trainer:
    def __init__(self, given):
        torch.manual_seed(1)
        lengths = json.loads(given.valid.read_text()) if given.valid else [given.length] * given.batch
        if len(lengths) != given.batch or not all(1 <= length <= given.length for length in lengths):
            raise SystemExit(f"--valid: expected {given.batch} lengths from 1 to {given.length}, got {lengths}")
        sizes = (models.LanguageSizes if given.language else models.Sizes)(
            given.length, given.dropout, given.attention_dropout, min(lengths) == given.length)
        mask = (torch.arange(given.length) < torch.tensor(lengths)[:, None]).float()
        tokens = torch.randint(1, sizes.vocabulary, (given.batch, given.length)) * mask.long()
        batch = tokens, mask, torch.randint(0, sizes.classes, tokens.shape if given.language else (given.batch,))
        self.device = torch.device(given.device)
        self.batch = [part.pin_memory() for part in batch] if self.device.type == "cuda" else batch
        self.half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(given.precision)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=given.precision == "fp16")
        torch.backends.cuda.matmul.allow_tf32 = given.precision == "tf32"
        models.Nystromformer.float_inverse = given.products
        model = (models.Decoder if given.language else models.Encoder)(given.attention, sizes).to(self.device)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 1e-4, total_steps=1_000_000,
                                                            anneal_strategy="linear", cycle_momentum=False)
        self.model = torch.compile(model, mode=given.compile) if given.compile else model
        self.begin = torch.compiler.cudagraph_mark_step_begin if given.compile else lambda: None

    def step(self):
        self.begin()
        tokens, mask, labels = (part.to(self.device, non_blocking=True) for part in self.batch)
        with torch.autocast(self.device.type, self.half, enabled=self.half is not None):
            loss = torch.nn.functional.cross_entropy(self.model(tokens, mask).flatten(0, -2), labels.flatten())
            loss = loss + self.model.extra_loss()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.optimizer.zero_grad()


class ProductRecorder(TorchDispatchMode):
    """Counts the matrix products that run while it is on, by shapes, strides and types."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator in PRODUCTS:
            left, right = (args[i] for i in PRODUCTS[operator])
            self.counts[tuple((tuple(x.shape), x.stride(), x.dtype) for x in (left, right))] += 1
        return operator(*args, **(kwargs or {}))


class Products:
    """What a recorder counted, as products to be done."""

    def __init__(self, counts):
        self.flops, self.work, self.libraries, kept = 0, [], collections.Counter(), {}

        def operand(shape, stride, type_):  # one piece of memory for all that look alike
            if (shape, stride, type_) not in kept:
                kept[shape, stride, type_] = torch.empty_strided(shape, stride, dtype=type_)
                kept[shape, stride, type_].untyped_storage().fill_(0)  # a stride may be 0: elements lie upon each other
            return kept[shape, stride, type_]

        for (left, right), count in counts.items():
            library, product = products.fastest(operand(*left), operand(*right))
            flops = 2 * count * math.prod(left[0]) * right[0][-1]
            self.flops += flops
            self.libraries[library] += flops
            self.work += [product] * count

    def step(self):
        for product in self.work:
            product()


def timed(step, count, on_gpu):
    """Milliseconds of a step, the mean of `count` queued one behind the other."""
    begin = time.perf_counter()
    if on_gpu:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        marks[0].record()
    for _ in range(count):
        step()
    if on_gpu:
        marks[1].record()
    queued = time.perf_counter()
    if on_gpu:
        torch.cuda.synchronize()
    end = time.perf_counter()
    line = {"ms": 1e3 * (end - begin) / count, "host_ms": 1e3 * (queued - begin) / count}
    return line | {"device_ms": marks[0].elapsed_time(marks[1]) / count} if on_gpu else line


def steps_to_time(milliseconds):
    """How many steps take 50 ms, by milliseconds(count) of so many: as src/measure/subject.h has it."""
    count, most = 1, 1000
    while count < most and (taken := milliseconds(count)) < 50:
        count = min(most, max(count + 1, math.ceil(50 / max(taken / count, 50 / most))))
    return count


def main():
    given = arguments()
    on_gpu = given.device.startswith("cuda")
    if given.products and on_gpu:
        raise SystemExit("--products are those of a CPU")
    if given.precision == "fp16" and not on_gpu:
        raise SystemExit(f"--precision: expected fp32, tf32 or bf16 on {given.device}, got fp16, which is a GPU's")
    started = time.monotonic()
    torch.set_num_threads(given.threads)
    if on_gpu:  # events, waiting and the allocator's peak are those of the current device
        torch.cuda.set_device(torch.device(given.device).index or 0)
    subject = Trainer(given)
    ready = {"event": "ready", "parameters": subject.parameters, "torch": torch.__version__,
             "gpu": torch.cuda.get_device_name(given.device) if on_gpu else None}
    if given.products:
        with FlopCounterMode(display=False) as counter, ProductRecorder() as recorder:
            subject.step()
        subject = Products(recorder.counts)
        ready |= {"step_flops": counter.get_total_flops(), "product_flops": subject.flops,
                  "libraries": {name: flops / subject.flops for name, flops in subject.libraries.most_common()}}
    else:
        subject.step()

    def step(count=1):
        with torch.no_grad() if given.products else torch.enable_grad():
            return timed(subject.step, count, on_gpu)

    def answer(line):
        line["peak_bytes"] = (torch.cuda.max_memory_allocated() if on_gpu else
                              1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        print(json.dumps(line), flush=True)

    for _ in range(given.warmup - 1):
        step()
    at_once = steps_to_time(lambda count: count * step(count)["device_ms"]) if on_gpu else 1
    if given.precision == "fp16":  # a scale that is found by now, or never
        scale = subject.scaler.get_scale()
        step()
        if subject.scaler.get_scale() < scale:
            raise SystemExit("gradients overflow fp16 whatever the scale, so that steps are left out")
    answer(ready | {"setup_seconds": time.monotonic() - started})
    for _ in sys.stdin:
        answer({"event": "step", **step(at_once)})


if __name__ == "__main__":
    main()
