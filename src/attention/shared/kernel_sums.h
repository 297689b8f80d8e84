// Kernel attention as attentions use it: kernels/feature_attention, and what it costs.
#pragma once

#include "attention/decoding.h"
#include "kernels/feature_attention/feature_attention.h"
#include "kernels/feature_attention/sums.h"

namespace xformer::attention {

using kernels::causal_kernel_sums;
using kernels::values_and_count;

// The operator under the mask that a core gets; rows of padded queries come out as zero.
[[nodiscard]] at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const SequenceMask& mask, kernels::FeatureAttentionOptions options);

// The same of the token at hand (DecodingCore): kept are its sums over the keys so far, S and z as the columns of one.
[[nodiscard]] at::Tensor decode_features(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const kernels::FeatureAttentionOptions& options, const DecodingStep& step,
                                         State& kept);
// Adds to what is kept under a name what the tokens at hand bring, and gives both together.
const at::Tensor& add_kept(State& kept, const std::string& name, const at::Tensor& more, const DecodingStep& step);

// FLOPs of phi(Q) (phi(K)^T values) by tensor operations, and what their causal form executes.
[[nodiscard]] double kernel_sums_flops(const Shape& shape, int64_t features, int64_t columns, bool causal);
// What the operator takes. Kept for the backward pass are the output with its denominators and, of the bidirectional
// form, the sums of keys.
[[nodiscard]] Cost feature_attention_cost(const Shape& shape, int64_t features, int64_t columns, bool causal);

}  // namespace xformer::attention
