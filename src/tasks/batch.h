// Classification of one sequence: what a batch is on the device, its loss, and its metrics.
#pragma once

#include "data/batcher.h"
#include "models/model.h"
#include "tensor/upload.h"

namespace xformer::tasks {

// Rows of a batch in device memory. Empty rows of a partial batch have row_valid 0 and count in nothing.
struct BatchView {
  at::Tensor tokens;     // [b, n] int64, 0 is padding
  at::Tensor key_valid;  // [b, n] bool
  at::Tensor labels;     // [b] int64
  at::Tensor row_valid;  // [b] float32

  [[nodiscard]] models::ModelInput input() const { return {tokens, key_valid}; }
};

// A whole batch in device memory, of one shape. The buffers keep their place from the first to the last batch, so that
// work on them can be recorded.
class DeviceBatch {
 public:
  DeviceBatch(at::Device device, int64_t rows, int64_t padded_len);
  // A batch of this shape; host memory may be reused at once.
  void load(const data::HostBatch& batch);

  [[nodiscard]] int64_t size() const { return all_.tokens.size(0); }
  [[nodiscard]] const BatchView& all() const { return all_; }
  // Views of rows first .. first + rows - 1.
  [[nodiscard]] BatchView rows(int64_t first, int64_t rows) const;
  // Filled rows of the loaded batch, at least 1; float64 [].
  [[nodiscard]] const at::Tensor& filled() const { return filled_; }

 private:
  BatchView all_;
  at::Tensor filled_;
  Upload upload_;
};

// Sums over the valid rows; scalars on the device.
struct Sums {
  at::Tensor loss;     // of the rows' cross entropies, differentiable
  at::Tensor correct;  // rows whose highest score is the label (ties: lowest class)
};

[[nodiscard]] Sums classify(const at::Tensor& logits, const BatchView& batch);

}  // namespace xformer::tasks
