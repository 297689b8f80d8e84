// Classification of one sequence: what a batch is on the device, its loss, and its metrics.
#pragma once

#include "data/batcher.h"
#include "models/model.h"

namespace xformer::tasks {

// A batch in device memory. The buffers keep their place while the shape stays, so that a step can be captured.
// Empty rows of a partial batch have row_valid 0 and count in nothing.
class DeviceBatch {
 public:
  explicit DeviceBatch(at::Device device) : device_(device) {}
  // Copies rows first .. first + rows - 1 of a host batch.
  void load(const data::HostBatch& batch, int64_t first, int64_t rows);

  [[nodiscard]] models::ModelInput input() const { return {tokens_, key_valid_}; }
  [[nodiscard]] const at::Tensor& labels() const { return labels_; }        // [b] int64
  [[nodiscard]] const at::Tensor& row_valid() const { return row_valid_; }  // [b] float32

 private:
  at::Device device_;
  at::Tensor tokens_, key_valid_, labels_, row_valid_;
};

// Sums over the valid rows of a batch; scalars on the device.
struct Sums {
  at::Tensor loss;     // of the rows' cross entropies, differentiable
  at::Tensor correct;  // rows whose highest score is the label (ties: lowest class)
};

[[nodiscard]] Sums classify(const at::Tensor& logits, const DeviceBatch& batch);

}  // namespace xformer::tasks
