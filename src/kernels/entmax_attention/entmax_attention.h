// Attention whose rows of weights are alpha-entmax in place of softmax (entmax.h), with dropout of the weights:
//   P = entmax(scale q k^T) over valid (and, if causal, not later) keys,   out = drop(P) v
// Kernels keep one number a row, the threshold, from which the backward pass makes the weights again. It is found by
// Newton's steps: on a CPU over the scores of some rows and all keys, which stay in the cache; on devices over tiles of
// scores that are multiplied anew for each step (as in Goncalves, Treviso, Martins, "AdaSplash: Adaptive Sparse Flash
// Attention", 2025).
#pragma once

#include "kernels/attention/attention.h"

namespace xformer::kernels {

struct EntmaxAttentionOptions {
  AttentionOptions rows;
  double alpha = 0;  // of all heads, from 1, which is softmax, to 2; 0: what the tensor says
};

// q [b,h,n,d], k [b,h,m,d], v [b,h,m,e] -> [b,h,n,e]; alpha [h] within 1 and 2, excluded where its gradient is asked
// for, undefined where options.alpha says it. A row without any allowed key is zero, with zero gradient.
[[nodiscard]] at::Tensor entmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const at::Tensor& alpha, const EntmaxAttentionOptions& options);

// Pairs of a query and a key that the CPU's forward pass multiplies for each head when all are valid: n m, or, causal,
// whole blocks of keys up to the diagonal.
[[nodiscard]] int64_t entmax_attention_pairs(int64_t n, int64_t m, bool causal);

// The definition, with [b,h,n,m] weights; reports alpha, the weights and how many of a row are not zero as
// probe("alpha"), probe("weights") and probe("support").
[[nodiscard]] at::Tensor entmax_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const at::Tensor& alpha, const EntmaxAttentionOptions& options);

}  // namespace xformer::kernels
