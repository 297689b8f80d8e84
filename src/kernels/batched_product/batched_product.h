// Products of many matrices at once, one for each sample and head: what attention forms outside the operators that know
// its softmax. On the CPU matrices are read where they lie, heads between tokens, transposed, or one for the whole
// batch, all of which at::matmul copies first; their tiles are gemm's (cpu/gemm.h). Where at::matmul is faster all the
// same, by a table of measured shapes (batched_product.cpp), it runs, and what ran is called the reference.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// a [.., m, k], b [.., k, n] -> [.., m, n], contiguous, as at::matmul. Both have the same number of dimensions, three
// at least; those before the last two are equal, or 1 where all share a matrix. Gradients lie in memory as a and b do.
[[nodiscard]] at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace xformer::kernels
