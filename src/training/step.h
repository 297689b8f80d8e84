// One training step: forward, backward, clipping, update. Shapes are fixed, buffers stay in place, and nothing is read
// back to the host; sums are read when the log is written.
#pragma once

#include "data/batcher.h"
#include "tasks/classification.h"
#include "training/adamw.h"
#include "training/options.h"

namespace xformer::training {

// bf16: matrix products outside the attention core run in bfloat16 while this lives (autocast).
class PrecisionScope {
 public:
  PrecisionScope(const std::string& precision, at::Device device);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  c10::DeviceType device_;
  bool active_, before_ = false;
};

// Sums since the last reading.
struct StepSums {
  double loss = 0, correct = 0, rows = 0;
  double gradient_norm = 0;  // of the last step
  int64_t skipped = 0;       // steps without update since the start of the run
  int64_t skipped_in_a_row = 0;
};

class TrainStep {
 public:
  TrainStep(models::Model& model, const TrainingOptions& options, at::Device device);
  // `step` counts from 0.
  void run(const data::HostBatch& batch, int64_t step, const ScheduleValues& values);
  [[nodiscard]] StepSums read_and_reset();

  [[nodiscard]] const AdamW& optimizer() const { return optimizer_; }
  // Device sums, saved with a checkpoint: loss, correct, rows, skipped, skipped in a row.
  [[nodiscard]] const at::Tensor& meter() const { return meter_; }

 private:
  models::Model& model_;
  TrainingOptions options_;
  at::Device device_;
  AdamW optimizer_;
  tasks::DeviceBatch batch_;
  at::Tensor meter_;  // float64 [5]
};

}  // namespace xformer::training
