#include "attention/shared/kernel_sums.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/feature_attention/features.h"

namespace xformer::attention {

at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                             kernels::FeatureAttentionOptions options) {
  options.mask = mask;
  options.query_valid = mask.query_valid(q.size(2));
  return kernels::feature_attention(q, k, v, options);
}

const at::Tensor& add_kept(State& kept, const std::string& name, const at::Tensor& more, const DecodingStep& step) {
  at::Tensor& sum = kept[name];
  sum = step.first > 0 ? sum + more : more;
  return sum;
}

at::Tensor decode_features(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const kernels::FeatureAttentionOptions& options, const DecodingStep& step, State& kept) {
  const bool softmax = options.map == kernels::FeatureMap::kSoftmax, by_sum = options.divisor <= 0;
  const at::Tensor values = by_sum ? values_and_count(v, {}) : v;
  at::Tensor phi_k;
  if (softmax) {
    const kernels::Projected keys = kernels::project(k * options.scale, options.omega);
    at::Tensor largest = keys.largest.amax(2, /*keepdim=*/true);  // c over the keys so far [b,h,1,1]
    if (step.first > 0) {
      const at::Tensor before = kept.at("largest");
      largest = at::maximum(largest, before);
      kept["sums"] = kept.at("sums") * at::exp(before - largest);
    }
    kept["largest"] = largest;
    phi_k = at::exp(keys.scores - (keys.half_square + largest));  // without the floor, which no scale goes with
    add_kept(kept, "values", values.sum(2, /*keepdim=*/true), step);
  } else {
    phi_k = kernels::plain_features(k, options);
  }
  const at::Tensor& sums = add_kept(kept, "sums", at::matmul(phi_k.transpose(-1, -2), values), step);  // [b,h,f,e]
  if (q.size(2) > 1) return feature_attention(q, k, v, {{}, /*causal=*/true}, options);
  at::Tensor row;
  if (softmax) {
    const kernels::Projected query = kernels::project(q * options.scale, options.omega);
    const at::Tensor phi_q = at::exp(query.scores - (query.half_square + query.largest)) + options.floor;
    row = at::matmul(phi_q, sums) + options.floor * phi_q.sum(-1, /*keepdim=*/true) * kept.at("values");
  } else {
    row = at::matmul(kernels::plain_features(q, options), sums);
  }
  if (!by_sum) return row / options.divisor;
  const int64_t e = v.size(-1);
  return row.narrow(-1, 0, e) / (row.narrow(-1, e, 1) + options.epsilon);
}

double kernel_sums_flops(const Shape& shape, int64_t features, int64_t columns, bool causal) {
  const double z = static_cast<double>(shape.batch * shape.heads), f = static_cast<double>(features);
  const double e = static_cast<double>(columns);
  if (!causal) return 2 * z * static_cast<double>(shape.query_len + shape.key_len) * f * e;
  const int64_t chunk = kernels::causal_chunk(shape.query_len);
  const int64_t rows = (shape.query_len + chunk - 1) / chunk * chunk;
  return z * static_cast<double>(rows) * (4 * f * e + 2 * static_cast<double>(chunk) * (f + e));
}

Cost feature_attention_cost(const Shape& shape, int64_t features, int64_t columns, bool causal) {
  const double z = static_cast<double>(shape.batch * shape.heads), f = static_cast<double>(features);
  const double formula = kernel_sums_flops(shape, features, columns, false);
  const double outputs = z * static_cast<double>((shape.head_dim + 1) * shape.query_len);
  if (!causal) return {formula, formula, z * static_cast<double>(shape.head_dim + 1) * f + outputs};
  const int64_t n = shape.query_len, chunk = kernels::kCausalRows, rest = n % chunk, first = std::min(n, chunk);
  const auto squares = static_cast<double>((n - rest) * chunk + rest * rest);
  // The table is not read by the first chunk, nor written by the last.
  const auto rows = static_cast<double>(2 * n - first - (rest > 0 ? rest : first));
  const double executed =
      2 * z * (squares * (f + static_cast<double>(shape.head_dim)) + rows * f * static_cast<double>(columns));
  return {executed, std::min(formula, executed), outputs};
}

}  // namespace xformer::attention
