"""A matrix product alone, by the library that does it fastest on this machine: what the arithmetic of a step takes at best.

A library may have its operands as it likes them best, laid out before anything is timed.
"""

import ctypes
import pathlib
import time

import torch

TILES = pathlib.Path(__file__).resolve().parent.parent.parent / "build" / "peers" / "tiles.so"


def pytorch(left, right, result):
    return lambda: torch.matmul(left, right, out=result)


def onednn(left, right, _):
    """What PyTorch takes for bf16, in fp32 too; it has no form that multiplies a batch or writes into kept memory."""
    weight = right.t().contiguous()
    return lambda: torch.ops.mkldnn._linear_pointwise(left, weight, None, "none", [], "")


def libxsmm(left, right, result):
    """None where scripts/peers-setup found no LIBXSMM, or it has no kernel for this machine."""
    half, (inner, columns) = left.dtype == torch.bfloat16, right.shape[-2:]
    if not TILES.is_file() or half and inner % 2:
        return None
    batch = left.shape[0] if left.dim() == 3 else 1
    if half:  # rows in pairs
        right = right.unflatten(-2, (inner // 2, 2)).transpose(-1, -2).contiguous()
        result = torch.empty(result.shape)
    call = ctypes.CDLL(str(TILES)).tiled_product
    numbers = [ctypes.c_int(half), *map(ctypes.c_int64, (batch, left.shape[-2], columns, inner))]

    def multiply():
        return result if call(*numbers, *(ctypes.c_void_p(x.data_ptr()) for x in (left, right, result))) else None

    return multiply if multiply() is not None else None


def ways(left, right):
    """(library, the product by it) for two matrices or two batches of them, as they lie and without gaps."""
    result = torch.matmul(left, right)
    plain = left.contiguous(), right.contiguous()
    half = left.dtype == torch.bfloat16
    found = [("oneDNN" if half else "MKL", pytorch(left, right, result)),
             ("oneDNN" if half else "MKL", pytorch(*plain, result)),
             ("LIBXSMM", libxsmm(*plain, result)),
             ("oneDNN", onednn(*plain, result) if left.dim() == 2 and not half else None)]
    return [(library, product) for library, product in found if product]


def least_seconds(product):
    """Of one to five calls after one that warms, as many as fit into a fifth of a second."""
    product()
    times = []
    while not times or len(times) < 5 and sum(times) < 0.2:
        begin = time.perf_counter()
        product()
        times.append(time.perf_counter() - begin)
    return min(times)


def fastest(left, right):
    """(library, the product by it)"""
    return min(ways(left, right), key=lambda way: least_seconds(way[1]))
