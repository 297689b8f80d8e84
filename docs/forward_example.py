#!/usr/bin/env python3
"""Computes attention with NumPy, from the formulas, and compares it with `xformer forward`.

    python3 docs/forward_example.py --xformer build/xformer

Needs numpy and safetensors (python3 -m pip install numpy safetensors). Prints the largest difference of each
comparison and exits with 1 when one is larger than rounding in float64 explains, with 77 when a package is missing.
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; python3 -m pip install numpy safetensors")
    sys.exit(77)

B, H, N, D = 3, 2, 37, 8  # samples, heads, tokens, width of a head
LENGTHS = [37, 20, 5]  # valid tokens of each sample
K, N_MAX = 6, 50  # rows and columns of Linformer's E


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def softmax_weights(q, k, mask):
    """softmax(Q K^T / sqrt(d)) over valid keys: [b,h,n,n]."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(mask[:, None, None, :], scores, -np.inf))


def softmax_attention(q, k, v, mask):
    return softmax_weights(q, k, mask) @ v


def linformer_attention(q, k, v, mask, e):
    """softmax(Q (E K)^T / sqrt(d)) (E V); padded keys are zero, and of E's N_max columns the first n count."""
    valid = mask[:, None, :, None]
    e = e[:, :, : q.shape[2]]  # [h,k,n]
    short_k, short_v = e @ (k * valid), e @ (v * valid)  # [b,h,k,d]
    return softmax(q @ short_k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ short_v


def pool(x, mask, scale):
    """Means of `scale` consecutive tokens, over the valid ones of a group, and which groups have any."""
    sums = np.zeros((x.shape[0], -(-x.shape[1] // scale), x.shape[2]))
    counts = np.zeros(sums.shape[:2])
    for i in range(x.shape[1]):
        sums[:, i // scale] += x[:, i] * mask[:, i, None]
        counts[:, i // scale] += mask[:, i]
    return sums / np.maximum(counts, 1)[:, :, None], counts > 0


def mrs_softmax_attention(q, k, v, mask, scales):
    """Head h attends among means of scales[h] tokens; each row of its result is repeated scales[h] times."""
    output = np.zeros_like(q)
    for h, scale in enumerate(scales):
        (short_q, groups), (short_k, _), (short_v, _) = (pool(x[:, h], mask, scale) for x in (q, k, v))
        scores = short_q @ short_k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        rows = softmax(np.where(groups[:, None, :], scores, -np.inf)) @ short_v
        output[:, h] = np.repeat(rows, scale, axis=1)[:, : q.shape[2]]
    return output


class Forward:
    """Runs `xformer forward` on NumPy arrays."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def __call__(self, words, tensors):
        given, made = os.path.join(self.folder, "in.safetensors"), os.path.join(self.folder, "out.safetensors")
        save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, given)
        command = [self.program, "forward", *words, "--input", given, "--output", made]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return load_file(made)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--xformer", default="./xformer", help="the program (default: %(default)s)")
    program = parser.parse_args().xformer

    numbers = np.random.default_rng(0)
    q, k, v = (numbers.standard_normal((B, H, N, D)) for _ in range(3))
    e = numbers.standard_normal((H, K, N_MAX)) / np.sqrt(K)
    mask = np.arange(N) < np.array(LENGTHS)[:, None]  # [b,n]
    valid = mask[:, None, :, None]
    # What --grad starts with. Rows of padded queries may hold anything: they get no weight.
    grad_output = numbers.standard_normal((B, H, N, D)) * valid
    failed = False

    def compare(what, ours, theirs, limit):
        nonlocal failed
        largest = np.abs(ours - theirs).max()
        failed |= not largest <= limit
        print(f"{what:<32} largest difference {largest:.1e}  {'ok' if largest <= limit else f'above {limit:g}'}")

    with tempfile.TemporaryDirectory() as folder:
        forward = Forward(program, folder)
        inputs = {"q": q, "k": k, "v": v, "mask": mask}

        made = forward(["--core", "softmax", "--capture", "weights", "--grad"], {**inputs, "grad_output": grad_output})
        compare("softmax output", made["output"] * valid, softmax_attention(q, k, v, mask) * valid, 1e-10)
        compare("softmax weights", made["weights"] * valid, softmax_weights(q, k, mask) * valid, 1e-10)
        # The derivative of sum(output * grad_output) by central differences, at a few entries.
        for name, array in (("q", q), ("k", k), ("v", v)):
            analytic, numeric = [], []
            for place in [(0, 0, 3, 1), (1, 1, 19, 7), (2, 0, 4, 0), (2, 1, 5, 2)]:
                sums = []
                for step in (1e-5, -1e-5):
                    moved = array.copy()
                    moved[place] += step
                    sums.append((softmax_attention(*(moved if x is array else x for x in (q, k, v)), mask)
                                 * grad_output).sum())
                numeric.append((sums[0] - sums[1]) / 2e-5)
                analytic.append(made["grad." + name][place])
            compare(f"softmax gradient of {name}", np.array(analytic), np.array(numeric), 1e-6)

        made = forward(["--core", "linformer", "--set", f"attention.projected_len={K}", "--max-len", str(N_MAX)],
                       {**inputs, "shared.linformer_e": e})
        compare("linformer output", made["output"] * valid, linformer_attention(q, k, v, mask, e) * valid, 1e-10)

        made = forward(["--core", "mrs-softmax", "--set", "attention.scales=1,4"], inputs)
        compare("mrs-softmax output", made["output"] * valid,
                mrs_softmax_attention(q, k, v, mask, [1, 4]) * valid, 1e-10)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
