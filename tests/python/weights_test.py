#!/usr/bin/env python3
"""Weights between the program and Python's safetensors package, both ways.

    weights_test.py PROGRAM

Exit codes: 0 as expected, 1 not, 77 numpy or safetensors are missing (skipped; scripts/python-packages).
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; scripts/python-packages installs what is needed")
    sys.exit(77)

# Width, head width, feed-forward and classifier widths all differ, so that no axis can stand in for another.
SIZES = {"model.dim": 12, "model.head_dim": 8, "model.ff_dim": 20, "model.classifier_dim": 24, "data.min_length": 10,
         "data.max_length": 60, "data.train_examples": 64, "data.dev_examples": 16, "data.test_examples": 32}


def expected_shapes():
    """mrs-performer on ListOps with SIZES: two heads, two layers, 64 positions, 32 rows of tokens, 10 classes."""
    def linear(name, out, into):
        return {f"{name}.weight": [out, into], f"{name}.bias": [out]}

    def norm(name):
        return {f"{name}.weight": [12], f"{name}.bias": [12]}

    shapes = {"tokens": [32, 12], "positions": [64, 12], **norm("norm"), **linear("classifier_in", 24, 12),
              **linear("classifier_out", 10, 24)}
    for layer in ("layer0", "layer1"):
        shapes |= {**norm(f"{layer}.mixer_norm"), **norm(f"{layer}.ff_norm"), **linear(f"{layer}.ff.in", 20, 12),
                   **linear(f"{layer}.ff.out", 12, 20), **linear(f"{layer}.mixer.out", 12, 16)}
        for part in ("query", "key", "value"):
            shapes |= linear(f"{layer}.mixer.{part}", 16, 12)
    return shapes


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.environment = dict(os.environ, XFORMER_CACHE=str(folder / "cache"), OMP_WAIT_POLICY="PASSIVE")
        self.environment.pop("XFORMER_DATA", None)

    def run(self, *words, code=0):
        done = subprocess.run([self.path, *map(str, words), "--threads", "1"], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, timeout=300)
        check(done.returncode == code, f"{words} ended with {done.returncode}, not {code}:\n{done.stderr}")
        return done

    def train(self, out, *more, code=0):
        settings = [f"{key}={value}" for key, value in SIZES.items()]
        return self.run("train", "--task", "listops", "--model", "mrs-performer", "--batch", "8", "--eval-every", "2",
                        "--out", out, "--set", *settings, *more, code=code)


failures = 0


def check(holds, claim):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {claim}", file=sys.stderr)


def same(left, right):
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and np.array_equal(left[name], right[name]) for name in left)


def content_sha256(path):
    data = path.read_bytes()
    return hashlib.sha256(data[8 + int.from_bytes(data[:8], "little"):]).hexdigest()


def weights_sha256(weights):
    types = {"float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64"}
    digest = hashlib.sha256()
    for name, array in sorted(weights.items()):
        line = f"{name} {types[str(array.dtype)]} {','.join(map(str, array.shape))}\n"
        digest.update(line.encode() + array.tobytes())
    return digest.hexdigest()


def read_what_the_program_wrote(run):
    path = run / "model.safetensors"
    weights = load_file(path)
    buffers = {name for name in weights if name.startswith("shared.performer_layer")}
    found = {name: list(array.shape) for name, array in weights.items() if name not in buffers}
    check(found == expected_shapes(), f"names and shapes: {found}")
    check(buffers == {"shared.performer_layer0_omega", "shared.performer_layer1_omega"}, f"buffers: {buffers}")
    check(all(array.dtype == np.float32 for array in weights.values()), "all tensors are float32")
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    record = json.loads((run / "record.json").read_text())
    check(set(metadata) == {"plan", "step", "content_sha256"}, f"metadata: {sorted(metadata)}")
    check(json.loads(metadata["plan"]) == json.loads((run / "plan.json").read_text()), "the plan in the metadata")
    check(metadata["step"] == str(record["selection"]["step"]), "the step in the metadata")
    check(metadata["content_sha256"] == content_sha256(path), "the content's hash")

    newest = max((run / "checkpoints").glob("step-*.safetensors"))
    checkpoint = load_file(newest)
    with safe_open(newest, "numpy") as file:
        metadata = file.metadata()
    check(set(metadata) == {"state", "header_sha256", "content_sha256"}, f"checkpoint metadata: {sorted(metadata)}")
    check(json.loads(metadata["state"])["step"] == 4, "the step of the checkpoint")
    check(metadata["content_sha256"] == content_sha256(newest), "the content's hash of the checkpoint")
    parts = {"model.": set(weights), "best.": set(weights), "optimizer.exp_avg.": set(weights) - buffers,
             "optimizer.exp_avg_sq.": set(weights) - buffers}
    expected = {prefix + name for prefix, names in parts.items() for name in names} | {"optimizer.step", "meter"}
    check(set(checkpoint) == expected, f"tensors of the checkpoint: {sorted(set(checkpoint) ^ expected)}")
    best = {name[5:]: array for name, array in checkpoint.items() if name.startswith("best.")}
    check(same(best, weights), "the best weights of the last checkpoint are those of model.safetensors")
    return weights


def have_the_program_read_ours(program, weights):
    # Half, single and double precision; values that a half has are the same in all.
    kinds = (np.float16, np.float32, np.float64)
    generator = np.random.default_rng(7)
    ours = {name: generator.normal(0, 0.1, array.shape).astype(np.float16).astype(kinds[i % 3])
            for i, (name, array) in enumerate(sorted(weights.items()))}
    ours["of_another_model"] = np.arange(3)
    save_file(ours, program.folder / "ours.safetensors", {"made_by": "a test"})
    # All but one tensor frozen: what was read is what is written.
    frozen = [name for name in weights if "omega" not in name and name != "norm.bias"]
    done = program.train("from-ours", "--steps", "2", "--init-from", "ours.safetensors", "--freeze", *frozen)
    check(f"{len(weights)} of {len(weights)} tensors taken; unused in the file: of_another_model" in done.stderr,
          f"what matched is said: {done.stderr}")
    after = load_file(program.folder / "from-ours" / "model.safetensors")
    check(set(after) == set(weights), "names after training from our file")
    for name, array in after.items():
        equal = np.array_equal(array, ours[name].astype(np.float32))
        check(equal == (name != "norm.bias"), f"{name} after training from our file")
    record = json.loads((program.folder / "from-ours" / "record.json").read_text())
    check(record["init_from"] == {"file": "ours.safetensors", "sha256": weights_sha256(ours), "taken": len(weights),
                                  "fresh": 0, "unused": 1, "fresh_tensors": [],
                                  "unused_tensors": ["of_another_model"]}, f"record: {record['init_from']}")

    # What does not fit.
    for name, change, code, words in (
            ("shape", {"tokens": np.zeros((32, 13), np.float32)}, 2, "tokens ([32, 12] in the model, [32, 13]"),
            ("type", {"tokens": np.zeros((32, 12), np.int64)}, 2, "tokens (type Float in the model, Long in the file)"),
            ("reinit", {"tokens": np.zeros((32, 13), np.float32)}, 0, "fresh: tokens")):
        save_file({**weights, **change}, program.folder / f"{name}.safetensors")
        more = ("--reinit", "tok*") if code == 0 else ()
        done = program.train(name, "--steps", "1", "--init-from", f"{name}.safetensors", *more, code=code)
        check(words in done.stderr, f"{name}: {done.stderr}")


def have_the_program_evaluate_ours(program, run, weights):
    # A classifier that sees only its bias: accuracy and loss follow from the labels alone.
    bias = np.linspace(-1, 1, 10).astype(np.float32)
    constant = {**weights, "classifier_out.weight": np.zeros_like(weights["classifier_out.weight"]),
                "classifier_out.bias": bias}
    path = run / "model.safetensors"
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    save_file(constant, path, metadata)
    refused = program.run("eval", run, code=3)
    check("damaged" in refused.stderr, "a content that is not that of its hash is refused")
    del metadata["content_sha256"]
    save_file(constant, path, metadata)
    result = json.loads(program.run("eval", run, "--json").stdout)
    rows = (run / "predictions.csv").read_text().splitlines()[1:]
    labels = np.array([int(row.split(",")[1]) for row in rows])
    loss = np.mean(np.log(np.exp(bias).sum()) - bias[labels])
    check(result["accuracy"] == np.mean(labels == 9), f"accuracy {result['accuracy']}")
    check(abs(result["loss"] - loss) < 1e-6, f"loss {result['loss']}, expected {loss}")


def refuse_the_same(program, weights):
    """Damage that the reference refuses is refused by the program too."""
    save_file({"a": weights["norm.bias"], "b": weights["norm.weight"]}, program.folder / "small.safetensors")
    data = (program.folder / "small.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, content = json.loads(data[8:8 + length]), data[8 + length:]

    def damaged(**changes):
        changed = {name: dict(entry, **changes.get(name, {})) for name, entry in header.items()}
        text = json.dumps(changed).encode()
        return len(text).to_bytes(8, "little") + text + content

    cases = {
        "cut": data[:-1], "longer": data + b"\0", "long header": (100_000_001).to_bytes(8, "little") + data[8:],
        "header beyond the file": len(data).to_bytes(8, "little") + data[8:],
        "overlap": damaged(b={"data_offsets": [44, 92]}), "type": damaged(a={"dtype": "F31"}),
        "shape": damaged(a={"shape": [13]}), "overflow": damaged(a={"shape": [2**62, 2**62]}),
        "no JSON": data[:8] + b"(" + data[9:], "empty": b"",
    }
    for name, content_of_case in cases.items():
        path = program.folder / "damaged.safetensors"
        path.write_bytes(content_of_case)
        try:
            load_file(path)
            check(False, f"the reference reads the case '{name}', which is no case then")
        except (SafetensorError, OSError, ValueError):
            pass
        done = program.train("damaged", "--steps", "1", "--init-from", path.name, code=3)
        check("damaged.safetensors" in done.stderr, f"{name}: {done.stderr}")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        program = Program(os.path.abspath(sys.argv[1]), pathlib.Path(folder))
        program.train("run", "--steps", "4")
        run = program.folder / "run"
        weights = read_what_the_program_wrote(run)
        have_the_program_read_ours(program, weights)
        refuse_the_same(program, weights)
        have_the_program_evaluate_ours(program, run, weights)
    print("failed" if failures else "weights are the same on both sides")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
