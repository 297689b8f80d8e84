#!/usr/bin/env python3
"""What this machine can do at best: rates of single operators in PyTorch, into kept memory. Prints JSON.

    ceilings.py THREADS [DEVICE]
"""

import json
import statistics
import sys
import time

import torch

import products


class Rates:
    def __init__(self, device):
        self.device = torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu:  # waiting, and the graph's stream, are those of the current device
            torch.cuda.set_device(self.device.index or 0)

    def seconds(self, action):
        """The median of seven calls after two, of fewer where they take seconds; on a GPU each the mean of as many as take
        10 ms."""
        def timed(count):
            begin = time.perf_counter()
            for _ in range(count):
                action()
            if self.on_gpu:
                torch.cuda.synchronize()
            return (time.perf_counter() - begin) / count

        first = timed(1)
        if first < 0.5:
            first = timed(1)
        count, found = max(1, int(0.01 / first)) if self.on_gpu else 1, []
        while len(found) < 7 and sum(found) * count < 2:
            found.append(timed(count))
        return statistics.median(found)

    def rate(self, work, action):
        """Units of work per second, in thousands of millions."""
        return work / self.seconds(action) / 1e9

    def product(self, *shapes, dtype=torch.float32):
        left, right = (torch.randn(shape, device=self.device).to(dtype) for shape in shapes)
        result = torch.matmul(left, right)
        return self.rate(2 * result.numel() * shapes[0][-1], lambda: torch.matmul(left, right, out=result))

    def best_product(self, *shapes, dtype=torch.float32):
        """By the library that is fastest at it: (its name, the rate)."""
        left, right = (torch.randn(shape).to(dtype) for shape in shapes)
        library, product = products.fastest(left, right)
        return library, self.rate(2 * left.numel() * right.shape[-1], product)

    def elements(self, count, action):
        source, kept = torch.rand(count, device=self.device), torch.rand(count, device=self.device)
        return self.rate(count, lambda: action(source, kept))

    def copy(self, count):
        large, other = torch.ones(count, device=self.device), torch.ones(count, device=self.device)
        return self.rate(2 * large.nbytes, lambda: other.copy_(large))

    def node_microseconds(self):
        """Of one kernel that does next to nothing in a captured graph of a thousand."""
        x = torch.zeros(64, device=self.device)
        x.add_(1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(1000):
                x.add_(1)
        return 1e3 * self.seconds(graph.replay)


def of_gpu(rates):
    result = {}
    for name, dtype, tf32 in ("fp32", torch.float32, False), ("tf32", torch.float32, True), ("bf16", torch.bfloat16, False):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for shapes in (((8192, 8192), (8192, 8192)), ((65536, 64), (64, 64)), ((65536, 64), (64, 128)),
                       ((65536, 64), (64, 256)), ((64, 2048, 32), (64, 32, 2048))):
            result[f"{name} {list(shapes[0])} x {list(shapes[1])}, GFLOP/s"] = rates.product(*shapes, dtype=dtype)
    return result | {
        "copy of 1 GiB, read and written, GB/s": rates.copy(256 << 20),
        "copy of 16 MiB, read and written, GB/s": rates.copy(4 << 20),
        "exp, 1e9 elements/s": rates.elements(256 << 20, lambda x, y: torch.exp(x, out=y)),
        "bernoulli (Philox), 1e9 elements/s": rates.elements(256 << 20, lambda x, y: y.bernoulli_(0.9)),
        "a node of a captured graph, microseconds": rates.node_microseconds(),
    }


def multiplies_bf16():
    """Whether the processor does; others would take minutes for what no model runs on them."""
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def of_cpu(rates):
    result = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))[:2 if multiplies_bf16() else 1]:
        for shapes in (((2048, 2048), (2048, 2048)), ((64, 2048, 32), (64, 32, 256)), ((64, 2048, 256), (64, 256, 32)),
                       ((65536, 64), (64, 64))):
            library, rate = rates.best_product(*shapes, dtype=dtype)
            result[f"{name} {list(shapes[0])} x {list(shapes[1])} by {library}, GFLOP/s"] = rate
    return result | {
        "copy of 128 MiB, read and written, GB/s": rates.copy(32 << 20),
        "exp in cache, 1e9 elements/s": rates.elements(64 << 10, lambda x, y: torch.exp(x, out=y)),
        "bernoulli in cache, 1e9 elements/s": rates.elements(64 << 10, lambda x, y: y.bernoulli_(0.9)),
    }


def main():
    torch.set_num_threads(int(sys.argv[1]))
    rates = Rates(sys.argv[2] if len(sys.argv) > 2 else "cpu")
    print(json.dumps(of_gpu(rates) if rates.on_gpu else of_cpu(rates)))


if __name__ == "__main__":
    main()
