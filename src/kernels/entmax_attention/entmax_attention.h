// Attention whose rows of weights are alpha-entmax in place of softmax (entmax.h), with dropout of the weights:
//   P = entmax(scale q k^T) over valid (and, if causal, not later) keys,   out = drop(P) v
// On a CPU it is its definition, whose parts are operators (entmax, batched_product) and which keeps the weights.
// Devices with kernels of it keep one number a row, the threshold, and find it by Newton's steps over tiles of scores
// that are multiplied anew for each of them (as in Goncalves, Treviso, Martins, "AdaSplash: Adaptive Sparse Flash
// Attention", 2025); the backward pass makes the weights again from it.
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

// The definition, with [b,h,n,m] weights; reports alpha, the weights and how many of a row are not zero as
// probe("alpha"), probe("weights") and probe("support").
[[nodiscard]] at::Tensor entmax_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const at::Tensor& alpha, const EntmaxAttentionOptions& options);

}  // namespace xformer::kernels
