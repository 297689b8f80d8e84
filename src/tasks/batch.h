// What a batch of a task is on the device.
#pragma once

#include "data/batches/batcher.h"
#include "models/model.h"
#include "tensor/upload.h"

namespace xformer::tasks {

// Rows of a batch in device memory. Empty rows of a partial batch have row_valid 0 and count in nothing.
struct BatchView {
  models::ModelInput inputs;
  at::Tensor row_valid;  // [b] float32
  // As data::fields_of has them: whole numbers are int64, flags bool, others float32; [b], with places [b,n], [b,n,k]
  // or, of pairs, [b,2,n], [b,2,n,k].
  std::vector<std::pair<std::string, at::Tensor>> fields;

  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] const at::Tensor& field(std::string_view name) const;  // which there must be
  // Views of rows first .. first + count - 1.
  [[nodiscard]] BatchView rows(int64_t first, int64_t count) const;
  void set_inputs();  // to the fields of their names
};

// A whole batch in device memory, of one shape. The buffers keep their place from the first to the last batch, so that
// work on them can be recorded. Whole numbers of places travel in the narrowest type that holds their range.
class DeviceBatch {
 public:
  // `numbers`: so many travel with each batch.
  DeviceBatch(at::Device device, int64_t rows, int64_t padded_len, const data::DataShape& shape, int64_t numbers = 0);
  // A batch of this shape; host memory may be reused at once.
  void load(const data::HostBatch& batch, const std::vector<double>& numbers = {});

  [[nodiscard]] int64_t size() const { return all_.row_valid.size(0); }
  // What arrived last, what travelled narrow widened: a part of the work that reads it, to be recorded with it.
  [[nodiscard]] const BatchView& widened() const;
  // Float64 [], on the device.
  [[nodiscard]] at::Tensor number(int64_t i) const { return numbers_.select(0, i); }

 private:
  int64_t padded_len_;
  BatchView all_;
  at::Tensor numbers_;
  Upload upload_;
  std::vector<std::pair<at::Tensor, at::Tensor>> narrow_;  // of upload_, and the field that it becomes
};

}  // namespace xformer::tasks
