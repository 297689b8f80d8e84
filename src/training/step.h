// One training step: forward, backward, clipping, update. Shapes are fixed, buffers stay in place, and nothing is read
// back to the host, so that on a CUDA device the whole step is captured once for each length and replayed; sums are
// read when the log is written.
#pragma once

#include <map>

#include "data/batches/batcher.h"
#include "plan/options.h"
#include "plan/schedule.h"
#include "tasks/task.h"
#include "tensor/autocast.h"
#include "training/optimizer.h"
#include "training/replay.h"

namespace xformer::training {

// bf16 and fp16: the type of matrix products outside the attention core (autocast); with our kernels on a CPU bf16 is
// that of activations and of all products' factors (kernels/fused.h).
[[nodiscard]] std::optional<at::ScalarType> product_type(const std::string& precision);

// tf32 or not, for all float32 products of the process; product_type() tells the rest. UserError for tf32 without CUDA.
void set_float_products(const std::string& precision, const at::Device& device);

// Means since the last reading.
struct StepSums {
  double loss = 0, weight = 0;   // of all but skipped steps; without any no number, and 0
  std::optional<Metric> metric;  // the task's first that needs no host, of the same steps
  double gradient_norm = 0;      // of the last step
  int64_t skipped = 0;           // steps without update since the start of the run
  int64_t skipped_in_a_row = 0;
};

class TrainStep {
 public:
  // The model is on the device already. The task is the data's own, with the loss as the options have it.
  TrainStep(models::Model& model, const data::DataShape& shape, const plan::TrainingOptions& options, at::Device device,
            Recorder recorder = {});
  TrainStep(models::Model& model, const data::DataShape& shape, std::unique_ptr<const tasks::Task> task,
            const plan::TrainingOptions& options, at::Device device, Recorder recorder = {});
  // The length of the longest batches that will come: the work of these is recorded before that of shorter ones, which
  // then fits into its memory.
  void expect(int64_t longest) { longest_ = longest; }
  // `step` counts from 0. On a CUDA device it returns before the step is done.
  void run(const data::HostBatch& batch, int64_t step, const plan::ScheduleValues& values);
  [[nodiscard]] StepSums read_and_reset();

  [[nodiscard]] const Optimizer& optimizer() const { return optimizer_; }
  // Device sums, saved with a checkpoint: those of tasks::Meters, skipped steps, those in a row.
  [[nodiscard]] const at::Tensor& meter() const { return meter_; }
  // What the model remembers from step to step, in fixed places; nothing where the data is not read in lanes
  // (data/batches/lane_order.h), and each batch begins afresh.
  [[nodiscard]] const models::State& memory() const { return memory_; }
  // All that a step changes, by the names of a checkpoint.
  [[nodiscard]] NamedTensors tensors() const;
  // To what they were; DataError, naming `origin`, where one is missing or has another shape.
  void restore(const std::map<std::string, at::Tensor>& saved, const std::string& origin);
  // How many of the shapes seen so far are captured: a batch has a length and a number of rows.
  [[nodiscard]] int64_t recorded() const;
  // Kernels that a captured step launches, of the smallest of those shapes; none: not known.
  [[nodiscard]] std::optional<int64_t> kernels() const;

 private:
  // Everything between the batch's arrival and the next one, from tensors only.
  void work(const tasks::DeviceBatch& batch);

  struct Bucket {
    tasks::DeviceBatch batch;
    Replay replay;
  };
  // By padded length and rows, as buckets_ has it.
  Bucket& bucket_of(std::pair<int64_t, int64_t> shape);

  models::Model& model_;
  data::DataShape shape_;
  std::unique_ptr<const tasks::Task> task_;
  tasks::Meters meters_;
  plan::TrainingOptions options_;
  at::Device device_;
  Recorder recorder_;
  int64_t longest_ = 0;
  Optimizer optimizer_;
  at::Tensor meter_;      // float64 [meters + 2]
  models::State memory_;  // each [batch, ..]; a narrower batch has its first rows
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Bucket>> buckets_;  // by padded length and rows
};

}  // namespace xformer::training
