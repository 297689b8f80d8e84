#include "attention/shared/kernel_sums.h"

namespace xformer::attention {

at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                             kernels::FeatureAttentionOptions options) {
  options.mask = mask;
  options.query_valid = mask.query_valid(q.size(2));
  return kernels::feature_attention(q, k, v, options);
}

double kernel_sums_flops(const Shape& shape, int64_t features, int64_t columns, bool causal) {
  const double z = static_cast<double>(shape.batch * shape.heads), f = static_cast<double>(features);
  const double e = static_cast<double>(columns);
  if (!causal) return 2 * z * static_cast<double>(shape.query_len + shape.key_len) * f * e;
  const int64_t chunk = kernels::causal_chunk(shape.query_len);
  const int64_t rows = (shape.query_len + chunk - 1) / chunk * chunk;
  return z * static_cast<double>(rows) * (4 * f * e + 2 * static_cast<double>(chunk) * (f + e));
}

double feature_attention_kept(const Shape& shape, int64_t features, bool causal) {
  const double z = static_cast<double>(shape.batch * shape.heads), f = static_cast<double>(features);
  const double columns = static_cast<double>(shape.head_dim + 1);
  if (causal) return z * f * static_cast<double>(shape.query_len + shape.key_len);
  return z * columns * (f + static_cast<double>(shape.query_len));
}

}  // namespace xformer::attention
