#include "tasks/classification.h"

#include <ATen/Functions.h>

#include "core/error.h"

namespace xformer::tasks {

DeviceBatch::DeviceBatch(at::Device device, int64_t rows, int64_t padded_len) : upload_(device) {
  const auto options = at::TensorOptions(device);
  all_.tokens = at::zeros({rows, padded_len}, options.dtype(at::kLong));
  all_.key_valid = at::zeros({rows, padded_len}, options.dtype(at::kBool));
  all_.labels = at::zeros({rows}, options.dtype(at::kLong));
  all_.row_valid = at::zeros({rows}, options.dtype(at::kFloat));
  filled_ = at::ones({}, options.dtype(at::kDouble));
}

void DeviceBatch::load(const data::HostBatch& batch) {
  XF_ASSERT(batch.batch == size() && batch.padded_len == all_.tokens.size(1),
            "a batch of [{}, {}] in buffers of [{}, {}]", batch.batch, batch.padded_len, size(), all_.tokens.size(1));
  const auto view = [](const auto& values, const at::Tensor& like, at::ScalarType type) {
    return at::from_blob(const_cast<void*>(static_cast<const void*>(values.data())), like.sizes(), type);
  };
  upload_({{view(batch.tokens, all_.tokens, at::kLong), all_.tokens},
           {view(batch.key_valid, all_.key_valid, at::kByte), all_.key_valid},
           {view(batch.labels, all_.labels, at::kLong), all_.labels},
           {view(batch.row_valid, all_.row_valid, at::kByte), all_.row_valid}});
  filled_.fill_(static_cast<double>(std::max<int64_t>(batch.filled, 1)));
}

BatchView DeviceBatch::rows(int64_t first, int64_t rows) const {
  const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, first, rows); };
  return {part(all_.tokens), part(all_.key_valid), part(all_.labels), part(all_.row_valid)};
}

Sums classify(const at::Tensor& logits, const BatchView& batch) {
  const at::Tensor losses = at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::None);
  // where, not a product: an empty row's loss must not count even if it is not finite.
  const at::Tensor valid = batch.row_valid > 0;
  const at::Tensor loss = at::where(valid, losses, at::zeros({}, losses.options())).sum();
  const at::Tensor correct = logits.detach().argmax(-1).eq(batch.labels).logical_and(valid).sum();
  return {loss, correct};
}

}  // namespace xformer::tasks
