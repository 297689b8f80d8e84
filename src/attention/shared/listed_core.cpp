#include "attention/shared/listed_core.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "attention/shared/windows.h"
#include "core/error.h"
#include "kernels/listed_attention/listed_attention.h"
#include "tensor/probe.h"

namespace xformer::attention {

std::vector<int64_t> keys_apart(const std::vector<int64_t>& apart, int64_t row, int64_t length, bool causal) {
  std::vector<int64_t> keys;
  for (const int64_t distance : apart) {
    if (row - distance >= 0) keys.push_back(row - distance);
    if (!causal && distance > 0 && row + distance < length) keys.push_back(row + distance);
  }
  return keys;
}

at::Tensor ListedCore::places(int64_t length, const at::Device& device) const {
  return places_.get(length, device, is_training(), [&] {
    std::vector<std::vector<int64_t>> rows;
    size_t longest = 1;
    for (int64_t row = 0; row < length; ++row) {
      rows.push_back(keys_(row, length, causal_));
      longest = std::max(longest, rows.back().size());
    }
    const at::Tensor places = at::full({1, 1, length, static_cast<int64_t>(longest)}, -1, at::kLong);
    int64_t* to = places.data_ptr<int64_t>();
    for (const std::vector<int64_t>& row : rows) {
      std::copy(row.begin(), row.end(), to);
      to += longest;
    }
    return host_table(places, device);
  });
}

at::Tensor ListedCore::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                               Carry& /*carry*/) {
  XF_ASSERT(mask.causal == causal_ && k.size(2) == q.size(2), "listed keys are of one sequence, causal {}", causal_);
  const at::Tensor places = this->places(q.size(2), q.device());
  probe("places", places);
  return kernels::listed_attention(q, k, v,
                                   {places, {}, mask.key_valid, mask.key_valid, dropout_.place(is_training())});
}

Cost ListedCore::cost(const Shape& shape) const {
  const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
  size_t pairs = 0;
  for (int64_t row = 0; row < shape.query_len; ++row) pairs += keys_(row, shape.query_len, causal_).size();
  const double flops = 4 * z * d * static_cast<double>(pairs);
  return {flops, flops, kept_of_windows(z, static_cast<double>(shape.query_len), d)};
}

}  // namespace xformer::attention
