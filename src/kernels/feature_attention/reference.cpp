// Feature attention from plain tensor operations: the meaning of the operator and of its gradient.
#include <ATen/Functions.h>

#include "kernels/feature_attention/features.h"
#include "kernels/feature_attention/sums.h"
#include "tensor/probe.h"

namespace xformer::kernels {

at::Tensor plain_features(const at::Tensor& x, const FeatureAttentionOptions& options) {
  const at::Tensor y = options.omega.defined() ? at::matmul(x * options.scale, options.omega.t()) : x;
  if (options.map == FeatureMap::kElu) return at::elu(y) + (1 + options.floor);
  return options.floor == 0 ? at::relu(y) : at::relu(y) + options.floor;
}

Projected project(const at::Tensor& x, const at::Tensor& omega) {
  const at::Tensor scores = at::matmul(x, omega.t());
  // The floor makes the output depend on c, so c has a gradient. Repeating the winner's product keeps that gradient
  // off the [n,f] scores.
  const at::Tensor winner = omega.index_select(0, scores.detach().argmax(-1).flatten()).view(x.sizes());
  return {scores, x.square().sum(-1, /*keepdim=*/true) / 2, (winner * x).sum(-1, /*keepdim=*/true)};
}

namespace {

constexpr double kLowest = -1e30;  // stands for "no valid key yet"

// phi(q) times the sums over keys of kSoftmax.
at::Tensor softmax_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& values,
                        const FeatureAttentionOptions& options) {
  const SequenceMask& mask = options.mask;
  const at::Tensor scaled = k * options.scale;
  const Projected query = project(q * options.scale, options.omega),
                  key = project(mask.all_valid() ? scaled : scaled * mask.as_factor(k.scalar_type()), options.omega);
  const at::Tensor phi_q = at::exp(query.scores - (query.half_square + query.largest)) + options.floor;  // [b,h,n,f]
  at::Tensor largest = key.largest, padded;  // [b,h,m,1], [b,1,m,1]
  if (!mask.all_valid()) {
    padded = mask.key_valid.logical_not().unsqueeze(1).unsqueeze(-1);
    largest = largest.masked_fill(padded, kLowest);
  }
  // The first of equal ones wins, and its gradient is not shared out.
  largest = mask.causal ? std::get<0>(at::cummax(largest, 2)) : std::get<0>(at::max(largest, 2, /*keepdim=*/true));
  at::Tensor shift = key.half_square + largest;  // [b,h,m,1]
  // A padded key is a zero vector here; without a shift its features are 1, and its values are zero.
  if (padded.defined()) shift = shift.masked_fill(padded, 0);
  const at::Tensor peaks = at::exp(key.scores - shift);  // phi(k) = peaks + floor; the floor is summed apart
  probe("phi_q", phi_q), probe("phi_k_peaks", peaks);
  if (mask.causal)
    return causal_kernel_sums(phi_q, peaks, values, largest) +
           options.floor * phi_q.sum(-1, /*keepdim=*/true) * values.cumsum(2);
  return at::matmul(phi_q,
                    at::matmul(peaks.transpose(-1, -2), values) + options.floor * values.sum(2, /*keepdim=*/true));
}

at::Tensor plain_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& values,
                      const FeatureAttentionOptions& options) {
  const at::Tensor phi_q = plain_features(q, options), phi_k = plain_features(k, options);  // [b,h,n,f]
  probe("phi_q", phi_q), probe("phi_k", phi_k);
  if (options.mask.causal) return causal_kernel_sums(phi_q, phi_k, values);
  return at::matmul(phi_q, at::matmul(phi_k.transpose(-1, -2), values));
}

}  // namespace

at::Tensor feature_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const FeatureAttentionOptions& options) {
  const SequenceMask& mask = options.mask;
  const bool by_sum = options.divisor <= 0;
  at::Tensor values;  // zero rows for padded keys, so phi(k) needs no mask of its own
  if (by_sum) values = values_and_count(v, mask);
  else values = mask.all_valid() ? v : v * mask.as_factor(v.scalar_type());
  const at::Tensor sums =
      options.map == FeatureMap::kSoftmax ? softmax_sums(q, k, values, options) : plain_sums(q, k, values, options);
  at::Tensor out;
  if (by_sum) {
    const int64_t e = v.size(-1);
    const at::Tensor denominator = sums.narrow(-1, e, 1) + options.epsilon;  // [b,h,n,1]
    probe("denominator", denominator);
    // Features are positive or floored: it is zero only where there is no valid key at all.
    out = sums.narrow(-1, 0, e) / denominator.masked_fill(denominator == 0, 1);
  } else {
    out = sums / options.divisor;
  }
  if (!options.query_valid.defined()) return out;
  return out.masked_fill(options.query_valid.logical_not().unsqueeze(1).unsqueeze(-1), 0);
}

}  // namespace xformer::kernels
