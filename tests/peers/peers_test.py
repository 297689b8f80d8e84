#!/usr/bin/env python3
"""The PyTorch models of the comparison compute what the program computes: same weights, tokens and mask give the same
logits, loss and gradients; in float64, and without gradients in float32 (PyTorch's float32 gradient of a convolution's
weights is a few per cent off on some processors).

    peers_test.py PROGRAM

Exit codes: 0 as expected, 1 not, 77 PyTorch is missing (skipped; scripts/setup --peers).
"""

import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest.mock

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup --peers installs what is needed")
    sys.exit(77)

import models
import products
import worker

LENGTH = 256
RAGGED, ALL_VALID = [LENGTH, 200, 31], [LENGTH] * 3
# The peers of performer and nystromformer treat padding as code of the field does, not as the papers' formulas have it.
CASES = [("softmax", "softmax", RAGGED), ("sdpa", "softmax", RAGGED), ("linformer", "linformer", RAGGED),
         ("linear", "linear", RAGGED), ("none", "none", RAGGED), ("performer", "performer", ALL_VALID),
         ("nystromformer", "nystromformer", ALL_VALID), ("paramixer-chord", "paramixer-chord", RAGGED),
         ("combiner-fixed", "combiner-fixed", RAGGED), ("routing", "routing", RAGGED), ("clustered", "clustered", RAGGED),
         ("entmax15", "entmax15", RAGGED)]
CAUSAL = [("softmax", "softmax", ALL_VALID), ("sdpa", "softmax", ALL_VALID), ("linear", "linear", ALL_VALID)]
DISCRETE = ["routing", "clustered"]  # choose by numbers that in float32 may lie on either side of a border
SHIFTED = ["softmax", "nystromformer", "combiner-fixed", "clustered", "entmax15"]  # do not see what all keys get
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}  # of the largest value


LISTOPS = ["--task", "listops", "--set", f"data.max_length={LENGTH}", "data.min_length=10"]
BYTES = ["--task", "bytes/enwik8", "--set", f"data.length={LENGTH}"]


def forward(program, model, words, tensors, folder):
    given, made = folder / "in.safetensors", folder / "out.safetensors"
    save_file(tensors, given)
    command = [program, "forward", "--model", model, *words, "--input", given, "--output", made]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return load_file(made)


def peer(attention, weights, lengths, language):
    sizes = (models.LanguageSizes if language else models.Sizes)(LENGTH, 0, 0, min(lengths) == LENGTH)
    model = (models.Decoder if language else models.Encoder)(attention, sizes).to(weights["tokens"].dtype)
    # Sums of the step at hand, which PyTorch's models do not keep.
    model.load_state_dict({key: value for key, value in weights.items() if ".core.step_" not in key}, strict=True)
    return model.eval()


def difference(ours, theirs):
    return ((ours - theirs).abs().max() / ours.abs().max().clamp(min=1e-30)).item()


def compare(program, attention, model, lengths, type_, language, folder):
    """{what: largest difference}"""
    mask = torch.arange(LENGTH) < torch.tensor(lengths)[:, None]
    batch = {"tokens": torch.randint(1, 257 if language else 16, (3, LENGTH)) * mask, "mask": mask,
             "labels": torch.randint(0, 256, (3, LENGTH)) if language else torch.tensor([3, 9, 0])}
    task = BYTES if language else LISTOPS
    drawn = forward(program, model, [*task, "--seed", "5"], batch, folder)
    # Queries and keys large enough for attention to be far from uniform.
    weights = {key: ((4 if ".query." in key or ".key." in key else 1) * value).to(type_)
               for key, value in drawn.items() if key not in ("logits", "loss")}
    save_file(weights, folder / "weights.safetensors")
    ours = forward(program, model, [*task, "--weights", folder / "weights.safetensors", "--grad"], batch, folder)
    net = peer(attention, weights, lengths, language)
    logits = net(batch["tokens"], mask.to(type_))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch["labels"].flatten())
    loss.backward()
    found = {"logits": difference(ours["logits"], logits), "loss": difference(ours["loss"], loss)}
    # Performer's code cuts the gradient through the features' maximum, which the program keeps.
    if type_ == torch.float64 and attention != "performer":
        for key, parameter in net.named_parameters():
            if key.endswith(".key.bias") and model in SHIFTED:  # that gradient is rounding
                continue
            theirs = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            found[f"gradient of {key}"] = difference(ours[f"grad.{key}"], theirs)
    if attention == "softmax":  # that the comparison can tell attentions apart
        other = difference(ours["logits"], peer("linear", weights, lengths, language)(batch["tokens"], mask.to(type_)))
        found["softmax beside linear, whose difference must be large"] = 0 if other > 100 * TOLERANCES[type_] else 1
    return found


def products_differ():
    """Of every library that multiplies here, batched and not, with edges in every direction and a long inner length."""
    worst = 0
    for shapes in (((3, 130, 96), (3, 96, 300)), ((130, 96), (96, 300)), ((64, 2048), (2048, 48))):
        exact = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
        for type_, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
            for library, product in products.ways(*(x.to(type_) for x in exact)):
                found = difference(exact[0] @ exact[1], product().double()) / tolerance
                print(f"{library:14} {str(type_):14} {shapes}  {'ok' if found <= 1 else 'FAILED'}")
                worst = max(worst, found)
    return worst > 1


class Clock:
    """A device's, on which a step takes 3 ms and one that is waited for another 4."""
    now, waited = 0.0, True

    def step(self):
        self.now += 7 if self.waited else 3
        self.waited = False

    def synchronize(self):
        self.waited = True

    def event(self, enable_timing):
        assert enable_timing
        one = unittest.mock.Mock()
        one.record = lambda: setattr(one, "at", self.now)
        one.elapsed_time = lambda later: later.at - one.at
        return one


def timing_differs():
    """Steps on a device are timed by its events, as many at once as take 50 ms; on a CPU one by one, by the host's clock."""
    clock = Clock()
    with unittest.mock.patch.multiple(torch.cuda, Event=clock.event, synchronize=clock.synchronize):
        alone, many = (worker.timed(clock.step, count, on_gpu=True) for count in (1, 20))
    on_cpu = worker.timed(clock.step, 1, on_gpu=False)
    found = {"a step's device_ms": alone["device_ms"] == 7, "that of 20": math.isclose(many["device_ms"], 64 / 20),
             "what a line has": (set(many), set(on_cpu)) == ({"ms", "host_ms", "device_ms"}, {"ms", "host_ms"}),
             "host_ms within ms": 0 < many["host_ms"] <= many["ms"],
             "steps at once": [worker.steps_to_time(lambda n: alone + each * (n - 1)) for alone, each in
                               ((60, 1), (50, 50), (49, 49), (7, 7), (10, 2), (0, 0))] == [1, 1, 2, 8, 21, 1000]}
    for what, good in found.items():
        print(f"timing: {what:20} {'ok' if good else 'FAILED'}")
    return not all(found.values())


def scaling_differs():
    """In fp16, which a CPU can take for a test, the model runs in 16 bits, its weights stay in 32, and a step whose gradients
    overflow is left out and halves the scale. Other precisions have no scale."""
    def trainer(precision):
        words = ["worker.py", "--attention", "softmax", "--length", "64", "--batch", "2", "--threads", "1", "--precision", precision]
        with unittest.mock.patch.object(sys, "argv", words):
            one = worker.Trainer(worker.arguments())
        one.seen = set()
        one.model.register_forward_hook(lambda _module, _input, logits: one.seen.add(logits.dtype))
        return one

    def moved(one):
        before = [parameter.detach().clone() for parameter in one.model.parameters()]
        one.step()
        return any(not torch.equal(x, y) for x, y in zip(before, one.model.parameters()))

    half = trainer("fp16")
    begin, first = half.scaler.get_scale(), moved(half)
    half.scaler.update(2.0**100)
    left_out, halved = not moved(half), half.scaler.get_scale() == 2.0**99
    half.scaler.update(begin)
    found = {"scale": begin == 65536, "a step": first, "overflow left out": left_out, "overflow halves": halved,
             "it goes on": moved(half), "types": half.seen == {torch.float16} and
             all(parameter.dtype == torch.float32 for parameter in half.model.parameters())}
    for precision, type_ in ("fp32", torch.float32), ("bf16", torch.bfloat16):
        one = trainer(precision)
        found[precision] = moved(one) and one.seen == {type_} and not one.scaler.is_enabled()
    for causal in False, True:  # sums over so many keys need more than fp16 has
        core = models.Linear(unittest.mock.Mock(causal=causal, length=4096), None, 0)
        q, k, v = (torch.randn(1, 2, 4096, 32).half() for _ in range(3))
        v, mask = v + 1, torch.ones(1, 4096)
        with torch.autocast("cpu", torch.float16):
            short = core(q, k, v, mask)
        found[f"linear, {causal=}"] = difference(core(q.float(), k.float(), v.float(), mask), short) < 0.01
    for what, good in found.items():
        print(f"scaling: {what:28} {'ok' if good else 'FAILED'}")
    return not all(found.values())


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    torch.manual_seed(7)
    failures = products_differ() + timing_differs()
    with tempfile.TemporaryDirectory() as folder:
        for attention, model, lengths, language in [*((*case, False) for case in CASES), *((*case, True) for case in CAUSAL)]:
            for type_, tolerance in TOLERANCES.items():
                if attention in DISCRETE and type_ != torch.float64:
                    continue
                found = compare(program, attention, model, lengths, type_, language, pathlib.Path(folder))
                worst = max(found, key=found.get)
                good = found[worst] <= tolerance
                failures += not good
                print(f"{attention:14} {'causal' if language else '':6} {str(type_):14} {len(found):3} compared, "
                      f"largest difference {found[worst]:.1e} ({worst})  {'ok' if good else 'FAILED'}")
    failures += scaling_differs()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
