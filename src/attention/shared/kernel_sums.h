// Kernel attention as attentions use it: kernels/feature_attention, and what it costs.
#pragma once

#include "attention/core.h"
#include "kernels/feature_attention/feature_attention.h"
#include "kernels/feature_attention/sums.h"

namespace xformer::attention {

using kernels::causal_kernel_sums;
using kernels::values_and_count;

// The operator under the mask that a core gets; rows of padded queries come out as zero.
[[nodiscard]] at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const SequenceMask& mask, kernels::FeatureAttentionOptions options);

// FLOPs of phi(Q) (phi(K)^T values), and what the causal form executes.
[[nodiscard]] double kernel_sums_flops(const Shape& shape, int64_t features, int64_t columns, bool causal);
// Elements kept for the backward pass: of the bidirectional form the sums of keys and the output with its denominators,
// of the causal one all features.
[[nodiscard]] double feature_attention_kept(const Shape& shape, int64_t features, bool causal);

}  // namespace xformer::attention
