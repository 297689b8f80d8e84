// The CPU's two passes of feature attention (feature_attention.h, both forms), for float and double, and
// for bf16 with omega, sums and denominators in float.
#pragma once

#include "kernels/feature_attention/feature_attention.h"

namespace xformer::kernels {

// Axis letters: f features, e columns of v; z = b h heads.
struct FeatureAttentionForward {
  at::Tensor out;          // [b,h,n,e], memory [b,n,h,e]
  at::Tensor table;        // [z,e+1,f]: S turned over, and z below it; causal: those ahead of blocks (causal.h)
  at::Tensor denominator;  // [z,n]
  // kSoftmax only: c of the keys [z], and where it is reached, the key and the feature [z,2] (-1 without a valid key).
  // Causal: c of each row and the key that gave it [z,n].
  at::Tensor largest, winner;
};

[[nodiscard]] FeatureAttentionForward feature_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                                    const at::Tensor& v,
                                                                    const FeatureAttentionOptions& options);

struct FeatureAttentionGradients {
  at::Tensor q, k, v;  // memory [b,n,h,d]
};

[[nodiscard]] FeatureAttentionGradients feature_attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                                       const at::Tensor& k, const at::Tensor& v,
                                                                       const FeatureAttentionForward& forward,
                                                                       const FeatureAttentionOptions& options);

}  // namespace xformer::kernels
