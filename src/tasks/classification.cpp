#include "tasks/classification.h"

#include <ATen/Functions.h>

namespace xformer::tasks {

void DeviceBatch::load(const data::HostBatch& batch, int64_t first, int64_t rows) {
  const std::vector<int64_t> shape{rows, batch.padded_len};
  if (!tokens_.defined() || tokens_.sizes() != shape) {
    const auto options = at::TensorOptions(device_);
    tokens_ = at::empty(shape, options.dtype(at::kLong));
    key_valid_ = at::empty(shape, options.dtype(at::kBool));
    labels_ = at::empty({rows}, options.dtype(at::kLong));
    row_valid_ = at::empty({rows}, options.dtype(at::kFloat));
  }
  const auto view = [&](const auto& values, int64_t width, at::ScalarType type) {
    const auto* begin = values.data() + first * width;
    return at::from_blob(const_cast<void*>(static_cast<const void*>(begin)), {rows, width}, type);
  };
  tokens_.copy_(view(batch.tokens, batch.padded_len, at::kLong));
  key_valid_.copy_(view(batch.key_valid, batch.padded_len, at::kByte));
  labels_.copy_(view(batch.labels, 1, at::kLong).view({rows}));
  row_valid_.copy_(view(batch.row_valid, 1, at::kByte).view({rows}));
}

Sums classify(const at::Tensor& logits, const DeviceBatch& batch) {
  const at::Tensor losses = at::cross_entropy_loss(logits, batch.labels(), {}, at::Reduction::None);
  // where, not a product: an empty row's loss must not count even if it is not finite.
  const at::Tensor valid = batch.row_valid() > 0;
  const at::Tensor loss = at::where(valid, losses, at::zeros({}, losses.options())).sum();
  const at::Tensor correct = logits.detach().argmax(-1).eq(batch.labels()).logical_and(valid).sum();
  return {loss, correct};
}

}  // namespace xformer::tasks
