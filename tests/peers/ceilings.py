#!/usr/bin/env python3
"""What this machine can do at best: rates of single operators in PyTorch, into kept memory. Prints JSON.

    ceilings.py THREADS
"""

import json
import statistics
import sys
import time

import torch


def rate(work, action):
    """Units of work per second, in thousands of millions: the median of seven calls after two."""
    seconds = []
    for _ in range(9):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return work / statistics.median(seconds[2:]) / 1e9


def product(*shapes):
    left, right = (torch.randn(shape) for shape in shapes)
    result = torch.matmul(left, right)
    return rate(2 * result.numel() * shapes[0][-1], lambda: torch.matmul(left, right, out=result))


def main():
    torch.set_num_threads(int(sys.argv[1]))
    large, other = torch.ones(32 << 20), torch.ones(32 << 20)  # 128 MiB each
    small, kept = torch.rand(64 << 10), torch.rand(64 << 10)  # 256 KiB each
    print(json.dumps({
        "mm 2048 x 2048 x 2048, GFLOP/s": product((2048, 2048), (2048, 2048)),
        "bmm [64, 2048, 32] x [64, 32, 256], GFLOP/s": product((64, 2048, 32), (64, 32, 256)),
        "bmm [64, 2048, 256] x [64, 256, 32], GFLOP/s": product((64, 2048, 256), (64, 256, 32)),
        "mm [65536, 64] x [64, 64], GFLOP/s": product((65536, 64), (64, 64)),
        "copy of 128 MiB, read and written, GB/s": rate(2 * large.nbytes, lambda: other.copy_(large)),
        "exp in cache, 1e9 elements/s": rate(small.numel(), lambda: torch.exp(small, out=kept)),
        "bernoulli in cache, 1e9 elements/s": rate(small.numel(), lambda: kept.bernoulli_(0.9)),
    }))


if __name__ == "__main__":
    main()
