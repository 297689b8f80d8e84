// Sums of kernel attention from plain tensor operations, sum_j <phi(q_i), phi(k_j)> values_j, in time and memory linear
// in the length (Katharopoulos et al. 2020, equations 4 to 12). Axis letters: f features, e columns of values.
#pragma once

#include <torch/types.h>

#include "tensor/sequence_mask.h"

namespace xformer::kernels {

// [v, 1]: values with a column that counts, so that one product gives numerator and denominator. Rows of padded
// keys are zero, which takes them out of both. [b,h,n,d] -> [b,h,n,d+1]
[[nodiscard]] at::Tensor values_and_count(const at::Tensor& v, const SequenceMask& mask);

// The causal form works in chunks of rows: products within a chunk, sums of whole chunks before it; no [n,n] and no
// [n,f,e]. Rows in a chunk of a sequence of this length.
[[nodiscard]] int64_t causal_chunk(int64_t length);

// Row i sums over j <= i. phi_q and phi_k [b,h,n,f], values [b,h,n,e] -> [b,h,n,e].
// With log_scale s [b,h,n,1], which must not decrease along n, term j of row i is times exp(s_j - s_i) <= 1: features
// whose own scale is exp(-s_j) are brought to the scale of the row that reads them.
[[nodiscard]] at::Tensor causal_kernel_sums(const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& values,
                                            const at::Tensor& log_scale = {});

}  // namespace xformer::kernels
