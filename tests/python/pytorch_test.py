#!/usr/bin/env python3
"""Runs as plain PyTorch modules (`xformer export-pytorch`) against the program.

    pytorch_test.py PROGRAM [NAME...]

Every attention and family that has a PyTorch form, with the options that change what is computed, on ragged sequences
with padding: in float with initial weights to 1e-5, in double with weights drawn large, where every part counts, to
1e-9. Exit codes: 0 as expected, 1 not, 77 PyTorch is missing (skipped; scripts/setup --peers).
"""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup --peers installs what is needed")
    sys.exit(77)

LENGTH = 29  # of the inputs; the model is built for 32
SIZES = {"model.dim": 12, "model.heads": 2, "model.head_dim": 6, "model.layers": 2, "model.ff_dim": 20}
ENCODER = {**SIZES, "model.classifier_dim": 14, "data.min_length": 10, "data.max_length": 32}

# Attention names with options, each in an encoder of ListOps.
ATTENTIONS = [
    ("softmax", {}), ("softmax-fused", {}), ("mrs-softmax", {}), ("mrs-softmax", {"scales": "1,3"}), ("none", {}),
    ("linear", {}), ("linear", {"norm": "sqrt-n"}), ("mrs-linear", {"scales": "2,4"}),
    *(("linformer", {"projected_len": 5, "sharing": sharing}) for sharing in ("layerwise", "kv", "headwise", "none")),
    ("linformer", {"projected_len": 5, "share_kv": "true"}), ("mrs-linformer", {"projected_len": 5}),
    ("performer", {"features": 16}), ("performer", {"features": 16, "double_scale": "true"}),
    ("mrs-performer", {"features": 16}), ("performer-relu", {"features": 16}),
    ("performer-relu", {"kernel": "relu-identity"}),
    ("nystromformer", {"landmarks": 6, "conv_kernel": 5}), ("nystromformer", {"conv_kernel": 0}),
    ("mrs-nystromformer", {"landmarks": 4, "conv_kernel": 3}),
    ("local-window", {"window": "3,1"}), ("local-block", {"block": 5}),
    ("local-block", {"block": 5, "glra_strided_blocks": "true"}), ("mrs-local-window", {"window": 2}),
    ("longformer", {"window": 2, "dilation": "1,3", "global_tokens": 2}), ("mrs-longformer", {"window": 2}),
    ("luna", {"packed_len": 5}), ("mrs-luna", {"packed_len": 5}),
    ("fmm", {}), ("mrs-fmm", {}), ("fmm", {"blend": "near"}), ("fmm", {"blend": "far", "norm": "sqrt-n"}),
    *(("fmm", {"blend": blend, "kernels": kernels, "kernel_weights": weights, "near_field": field})
      for blend, kernels, weights, field in (("far-elem", "elu+elu-flip", "learned", "dense"),
                                             ("near-head", "elu+tanh", "first-fixed", "banded"),
                                             ("convex", "tanh+tanh-orthogonal", "equal", "banded"))),
    *(("fmm", {"kernels": kernel}) for kernel in ("elu-flip", "tanh", "relu", "sigmoid", "softplus", "celu",
                                                  "leaky-relu", "tanh-orthogonal")),
    ("synth-dense", {}), ("synth-random", {"dot": "true"}), ("synth-random-dot", {}),
    ("synth-fact-random", {"rank": 3}), ("synth-fact-dense", {"dot": "true"}),
    *(("conv-linformer", {"projected_len": 6, "conv": conv}) for conv in ("full", "depthwise", "scalar")),
    ("mrs-conv-linformer", {"projected_len": 6}),
    ("set-induced", {"inducing": 5}), ("mrs-set-induced", {"inducing": 5}),
    *(("set-isab", {"inducing": 5, "mab": mab}) for mab in ("code", "code-norm", "paper")),
    ("additive", {}), ("mrs-additive", {}), ("explicit-sparse", {"top_k": 4}),
    ("explicit-sparse", {"top_k": 2, "top_fraction": 0.3}), ("adaptively-sparse", {}),
    ("adaptively-sparse", {"alpha": 1.3, "learn_alpha": "false"}), ("entmax15", {}), ("sparsemax", {}),
    ("sparse-strided", {"stride": 5}), ("sparse-strided", {"stride": 5, "head_split": "true"}),
    ("sparse-fixed", {"stride": 6, "summary": 2, "summary_first": "true"}),
    ("sparse-fixed", {"stride": 6, "summary": 2, "head_split": "true"}),
    ("mrs-sparse-fixed", {"stride": 5, "summary": 1}),
    ("logsparse", {"local": 2}), ("logsparse", {"restart": 7}), ("logsparse", {"pattern": "bit-suffix"}),
    ("blockwise", {"blocks": 3}), ("axial", {}), ("axial", {"axes": "union", "columns": 5}), ("mrs-axial", {}),
    ("image-local-1d", {"block": 5, "memory_length": 3}), ("mrs-image-local-1d", {"block": 5, "memory_length": 3}),
    ("image-local-2d", {"block_height": 2, "block_width": 3, "memory_height": 1, "memory_width": 2}),
    ("etc", {"global_tokens": 3, "window": "2,4"}), ("mrs-etc", {"global_tokens": 3, "window": 2}),
    ("memory-compressed", {}), ("memory-compressed", {"alternate": "true", "block": 5}), ("mrs-memory-compressed", {}),
    ("adaptive-span", {"ramp": 4}), ("adaptive-span", {"span": 9, "ramp": 4, "include_self": "false"}),
    ("mrs-adaptive-span", {"ramp": 4}), ("rfa-gaussian", {}), ("rfa-arccos", {"redraw": 0}), ("mrs-rfa-gaussian", {}),
    ("diet-cascade", {}), ("diet-cascade", {"first_window": 2, "window_growth": 1.5}), ("diet-dilated", {}),
    ("diet-dilated", {"links": 4, "dilation_base": 3}), ("diet-dilated-memory", {}), ("mrs-diet-dilated-memory", {}),
    ("paramixer-chord", {}), ("paramixer-chord", {"residual": "block", "final_norm": "true"}),
    ("paramixer-chord", {"mask_pads": "false"}), ("paramixer-cdil", {"links": 5, "factors": 3, "hidden": 7}),
]
# Options of the encoder.
ENCODERS = [
    {"pooling": "mean_valid", "attention_bias": "false", "activation": "gelu_tanh"},
    {"pooling": "cls_token", "vocabulary_rows": 40, "mask_output": "false"},
    {"pooling": "cls_vector", "positions": "sinusoidal", "classifier_dim": 0},
    {"pooling": "flatten", "positions": "none", "activation": "relu"},
    {"norm": "post", "activate_output": "true", "scale_input": "true"}, {"norm": "batch"}, {"reversible": "true"},
    {"pooling": "cls_vector", "scale_input": "true", "norm_epsilon": 1e-2, "ff_chunk": 3},
    {"pooling": "flatten", "key_places": "all"},
]
# (attention, options) that a causal model can have.
CAUSAL = [
    ("softmax", {}), ("linear", {}), ("linear", {"norm": "sqrt-n"}), ("performer", {"features": 16}),
    ("performer-relu", {"features": 16}), ("none", {}), ("local-window", {"window": 3}), ("local-block", {"block": 5}),
    ("longformer", {"window": 2, "dilation": "1,3", "global_tokens": 2}), ("fmm", {}), ("synth-fact-dense", {}),
    ("additive", {}), ("explicit-sparse", {"top_k": 4, "top_fraction": 0.3}), ("adaptively-sparse", {}),
    ("sparse-strided", {"stride": 5}), ("sparse-fixed", {"stride": 6, "summary": 2}), ("logsparse", {}),
    ("logsparse", {"pattern": "bit-suffix"}), ("blockwise", {}), ("axial", {"axes": "union", "columns": 5}),
    ("memory-compressed", {}), ("adaptive-span", {"ramp": 4}), ("rfa-gaussian", {}), ("rfa-arccos", {}),
    ("image-local-1d", {"block": 5, "memory_length": 3}),
    ("image-local-2d", {"block_height": 2, "block_width": 3, "memory_height": 1, "memory_width": 2, "columns": 7}),
    ("diet-cascade", {"first_window": 2}), ("diet-dilated", {}), ("diet-dilated-memory", {"links": 2}),
]


def under(prefix, options):
    return {f"{prefix}.{key}": value for key, value in options.items()}


def cases():
    """(model, task, settings)"""
    for name, options in ATTENTIONS:
        sizes = {"model.head_dim": 6} if name == "set-isab" else {"model.head_dim": 8}
        yield name, "listops", {**ENCODER, **sizes, **under("attention", options)}
    for options in ENCODERS:
        yield "encoder/softmax", "listops", {**ENCODER, **under("model", options)}
    for name in ("etc", "axial", "blockwise", "sparse-fixed", "mrs-image-local-2d"):  # with a vector in front
        yield name, "listops", {**ENCODER, "model.pooling": "cls_vector"}
    yield "etc", "listops", {**ENCODER, "model.pooling": "prefix_max"}
    yield "axial", "image", SIZES  # the places of an image
    yield "mrs-softmax", "listops", {**ENCODER, "model.pooling": "cls_vector", "attention.scales": "2,3"}
    yield "softmax", "adding", {**SIZES, "model.pooling": "mean_valid", "data.length": 32}
    for name, options in CAUSAL:
        yield name, "selective-copy", {**SIZES, **under("attention", options)}
    for options in ({"tied": "false", "norm": "post"}, {"ff_dim": 0},
                    {"positions": "sinusoidal", "reversible": "true"}):
        yield "softmax", "selective-copy", {**SIZES, **under("model", options)}
    # Vectors of places, by a map; ids of places of two segments, by the embedding or a map.
    yield "token-encoder/linear", "furthest-vector", {**SIZES, "data.length": 32}
    yield "token-encoder/softmax", "furthest-vector", {**SIZES, "data.length": 32, "model.norm": "post"}
    for options in ({}, {"tied": "false", "norm": "post", "scale_input": "true"}):
        yield "softmax", "text-mlm/mill", {**SIZES, "data.length": 32, **under("model", options)}
    for options in ({}, {"interaction": "concat", "head_layers": 3, "classifier_dim": 9}):
        yield "linear", "aan-synth", {**SIZES, **under("model", options)}
    yield "mrs-deit", "imagenet", {**SIZES, "attention.scales": "1,2"}
    for model in ("encoder/mrs-linear", "lstm"):
        yield model, "transactions", {"model.dim": 12, "model.layers": 2, "data.length": 32}
    for model, task in (("ft/softmax", "california-housing"), ("mrs-ft", "adult"), ("ft/performer", "adult")):
        sizes = {"model.dim": 16, "model.heads": 2, "model.layers": 2, "model.ff_dim": 10}
        yield model, f"tabular/{task}", {**sizes, **({"attention.scales": "1,2"} if model == "mrs-ft" else {})}
    yield "lstm", "listops", {"model.dim": 8, "model.hidden": 10, "model.layers": 2, "data.max_length": 32}
    yield "lstm", "adding", {"model.dim": 8, "model.hidden": 10, "data.length": 32}
    yield "cnn", "image", {"model.width": 8}


class Program:
    def __init__(self, path, folder):
        self.path = path
        self.environment = dict(os.environ, XFORMER_CACHE=str(folder / "cache"), OMP_WAIT_POLICY="PASSIVE")
        self.environment.pop("XFORMER_DATA", None)

    def run(self, folder, *words, code=0):
        done = subprocess.run([self.path, *map(str, words)], cwd=folder, env=self.environment, capture_output=True,
                              text=True, timeout=300)
        if done.returncode != code:
            raise AssertionError(f"{words} ended with {done.returncode}, not {code}:\n{done.stderr}")
        return done


def module_of(path):
    spec = importlib.util.spec_from_file_location(f"exported_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_for(task, settings, generator):
    """What `xformer forward` takes: ragged sequences, one of a single place, one as long as the tensor."""
    length = 32 if settings.get("model.pooling") == "flatten" else LENGTH
    lengths = torch.tensor([length, 1, 17, 22])
    mask = torch.arange(length) < lengths[:, None]
    if task == "imagenet":
        return {"values": torch.randn(2, 196, 768, generator=generator), "mask": torch.ones(2, 196, dtype=torch.bool)}
    if task == "image":
        return {"tokens": torch.randint(0, 256, (2, 1024), generator=generator),
                "mask": torch.ones(2, 1024, dtype=torch.bool)}
    if task in ("adding", "furthest-vector"):
        width = 2 if task == "adding" else 4
        return {"values": torch.randn(4, length, width, generator=generator), "mask": mask}
    if task == "transactions":  # numbers, and codes of words
        codes = torch.randint(1, 5, (4, length, 2), generator=generator)
        values = torch.cat([torch.randn(4, length, 2, generator=generator), codes], -1)
        return {"values": values * mask[..., None], "mask": mask}
    if task.startswith("tabular/"):  # 8 numbers, or 6 and codes
        numbers, codes = (8, 0) if task.endswith("housing") else (6, 8)
        codes = torch.randint(0, 2, (4, codes, 1), generator=generator)
        values = torch.cat([torch.randn(4, numbers, 1, generator=generator), codes], 1)
        return {"values": values, "mask": torch.ones(values.shape[:2], dtype=torch.bool)}
    if task.startswith("text-mlm/"):
        return {"tokens": torch.randint(1, 32004, mask.shape, generator=generator) * mask, "mask": mask,
                "segments": torch.randint(0, 2, mask.shape, generator=generator)}
    if task == "aan-synth":
        mask = torch.stack([mask, mask.flip(0)], 1)
    return {"tokens": torch.randint(1, 16, mask.shape, generator=generator) * mask, "mask": mask}


def large(weights, generator):
    """Weights in double, far from where training begins."""
    drawn = {}
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            drawn[name] = tensor
            continue
        drawn[name] = tensor.double() + 0.4 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if name.endswith("running_variance"):
            drawn[name] = drawn[name].abs() + 0.1
    return drawn


def difference(ours, theirs):
    assert ours.shape == theirs.shape, f"{ours.shape} beside {theirs.shape}"
    return ((ours - theirs).abs().max() / ours.abs().max().clamp_min(1)).item()


def compare(program, folder, model, task, settings, seed):
    """Differences in float and in double, between the program and what it exported."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(seed)
    inputs = inputs_for(task, settings, generator)
    save_file(inputs, folder / "in.safetensors")
    words = ["forward", "--model", model, "--task", task, "--input", "in.safetensors", "--threads", "1", "--set",
             *(f"{key}={value}" for key, value in settings.items())]
    program.run(folder, *words, "--seed", seed, "--output", "float.safetensors")
    weights = load_file(folder / "float.safetensors")
    with safe_open(folder / "float.safetensors", "pt") as file:
        plan = file.metadata()["plan"]
    logits = weights.pop("logits")
    # A run's directory, as export-pytorch reads it.
    (folder / "run").mkdir()
    (folder / "run" / "plan.json").write_text(plan)
    save_file(weights, folder / "run" / "model.safetensors", {"plan": plan, "step": "0"})
    program.run(folder, "export-pytorch", "run", "model.py")
    module = module_of(folder / "model.py")
    x = inputs["values"] if "values" in inputs else inputs["tokens"]
    rest = [inputs[name] for name in ("mask", "segments") if name in inputs]
    with torch.no_grad():
        in_float = difference(logits, module.load()(x, *rest))
    save_file(large(weights, generator), folder / "large.safetensors")
    program.run(folder, *words, "--weights", "large.safetensors", "--output", "double.safetensors")
    with torch.no_grad():
        exported = module.load(folder / "large.safetensors")
        found = exported(x.double() if "values" in inputs else x, *rest)
    in_double = difference(load_file(folder / "double.safetensors")["logits"], found)
    exported.train()(x.double() if "values" in inputs else x, *rest).sum().backward()
    without = [name for name, one in exported.named_parameters()
               if one.grad is None and not (model.endswith("none") and (".query." in name or ".key." in name))]
    assert not without, f"no gradient reaches {without}"
    return in_float, in_double


def trained_run(program, folder):
    """A run that was trained, its file as a program of its own, and what is refused."""
    folder.mkdir()
    settings = [f"{key}={value}" for key, value in ENCODER.items()]
    program.run(folder, "train", "--model", "mrs-linformer", "--task", "listops", "--steps", 3, "--batch", 4, "--out",
                "run", "--threads", 1, "--set", *settings, "data.train_examples=16", "data.dev_examples=4",
                "data.test_examples=4")
    program.run(folder, "export-pytorch", "run", "model.py")
    save_file(inputs_for("listops", {}, torch.Generator().manual_seed(1)), folder / "in.safetensors")
    program.run(folder, "forward", "run", "--input", "in.safetensors", "--output", "out.safetensors", "--threads", 1)

    def printed(*words):
        done = subprocess.run([sys.executable, "model.py", *words], cwd=folder, capture_output=True, text=True,
                              check=True, timeout=300)
        return torch.tensor(json.loads(done.stdout))

    found = difference(load_file(folder / "out.safetensors")["logits"], printed("in.safetensors"))
    assert found <= 1e-5, f"the file as a program: {found:.1e}"
    assert printed("3", "5", "7").shape == (1, 10), "logits of ids"

    def refused(words, code, *run_and_file):
        said = program.run(folder, "export-pytorch", *run_and_file, code=code).stderr
        assert words in said and said.count("\n") == 1, f"{run_and_file}: expected one line with '{words}', got {said}"

    refused("is there already", 2, "run", "model.py")
    refused("expected the name of a Python file", 2, "run", "model.txt")
    refused("is no run directory", 2, "nothing", "new.py")
    weights = folder / "run" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    refused("model.safetensors", 3, "run", "new.py")
    weights.write_bytes(whole[:-8] + bytes(8))
    refused("damaged", 3, "run", "new.py")
    assert not list(folder.glob("new.*")), "nothing is left of a refusal"


def refusals(program, folder):
    """What has no PyTorch form is refused with what has one: -> these attentions and families."""
    folder.mkdir()
    known = {}
    for model, options, words in (
            ("reformer", {}, "the attention reformer"), ("block-encoder/softmax", {}, "the family block-encoder"),
            ("longformer", {"attention.global_tied": "false"}, "attention.global_tied=true alone")):
        run = folder / model.replace("/", "-")
        run.mkdir()
        save_file({"tokens": torch.ones(1, 8, dtype=torch.int64)}, folder / "in.safetensors")
        program.run(folder, "forward", "--model", model, "--task", "listops", "--seed", 0, "--input", "in.safetensors",
                    "--output", "out.safetensors", "--set",
                    *(f"{key}={value}" for key, value in {**ENCODER, **options}.items()))
        with safe_open(folder / "out.safetensors", "pt") as file:
            (run / "plan.json").write_text(file.metadata()["plan"])
        save_file(load_file(folder / "out.safetensors"), run / "model.safetensors")
        said = program.run(folder, "export-pytorch", run.name, "model.py", code=2).stderr
        assert words in said, f"{model}: {said}"
        known[model] = re.findall(r"[a-z0-9-]+", said.partition("there are")[2])
    return known["reformer"], known["block-encoder/softmax"]


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = Program(os.path.abspath(sys.argv[1]), folder)
        wanted = [case for case in cases() if not sys.argv[2:] or case[0] in sys.argv[2:]]
        if not sys.argv[2:]:
            trained_run(program, folder / "trained")
            attentions, families = refusals(program, folder / "refused")
            tested = {case[0].split("/")[-1].removeprefix("mrs-") for case in cases()}
            for one in {*attentions, *families} - tested - {"encoder", "dual-encoder", "decoder", "token-encoder",
                                                                "vit", "ft-transformer"}:
                failures += 1
                print(f"FAILED: {one} has a PyTorch form and no case here", file=sys.stderr)

        def run(numbered):
            i, case = numbered
            try:
                return compare(program, folder / f"case{i}", *case, seed=i)
            except Exception as error:  # of this case; the others go on
                return f"{type(error).__name__}: {error}"

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for (model, task, settings), found in zip(wanted, pool.map(run, enumerate(wanted))):
                options = {key: value for key, value in settings.items() if ENCODER.get(key) != value}
                good = not isinstance(found, str) and found[0] <= 1e-5 and found[1] <= 1e-9
                failures += not good
                told = found if isinstance(found, str) else f"float {found[0]:.1e}, double {found[1]:.1e}"
                print(f"{model:20} {task:15} {options}  {told}  {'ok' if good else 'FAILED'}", flush=True)
    print("failed" if failures else "the exported modules compute what the program computes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
