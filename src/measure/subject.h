// A model on a device that takes steps, of training or of inference, always on the same random batch: what is measured.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "measure/bench.h"
#include "training/step.h"

namespace xformer::measure {

class Subject {
 public:
  Subject(const BenchCase& wanted, bool trains, const at::Device& device, const training::Recorder& recorder);
  // A step, or on a CUDA device the request for it.
  void run();
  // Milliseconds of a step, from the batch in host memory until the device is done; of several, their mean.
  double step();
  // After the warm-up. On a CUDA device as many steps are timed at once as take a while, one queued behind the other as
  // in training: a wait after each would be timed with it.
  void settle();

  [[nodiscard]] int64_t steps_at_once() const { return steps_at_once_; }
  // Until the steps were queued on a CUDA device, of every call of step() since settle(); null elsewhere.
  [[nodiscard]] Json host_ms() const;
  [[nodiscard]] const models::Model& model() const { return *model_; }
  [[nodiscard]] bool captured() const { return training_ ? training_->recorded() > 0 : inference_->recorded(); }
  // That a captured step launches.
  [[nodiscard]] std::optional<int64_t> kernels() const {
    return training_ ? training_->kernels() : inference_->kernels();
  }

 private:
  at::Device device_;
  plan::TrainingOptions options_;
  data::HostBatch host_;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<training::TrainStep> training_;
  std::unique_ptr<tasks::DeviceBatch> batch_;
  std::unique_ptr<training::Replay> inference_;
  int64_t steps_ = 0, steps_at_once_ = 1;
  std::vector<double> host_ms_;
};

// {"median", "p10", "p90"}.
[[nodiscard]] Json spread(const std::vector<double>& milliseconds);

}  // namespace xformer::measure
