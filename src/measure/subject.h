// A model on a device that takes steps, of training or of inference, always on the same random batch: what is measured.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "measure/bench.h"
#include "tensor/device_clock.h"
#include "training/step.h"

namespace xformer::measure {

class Subject {
 public:
  Subject(const BenchCase& wanted, bool trains, const at::Device& device, const training::Recorder& recorder);
  // A step, or on a device the request for it.
  void run();
  StepTime step();
  // After the warm-up. On a device as many steps are timed at once as take a while, one queued behind the other as in
  // training: a wait after each would be timed with it. The device's clock runs from here on.
  void settle();

  [[nodiscard]] int64_t steps_at_once() const { return steps_at_once_; }
  // Medians of every call of step() since settle(); null on the CPU.
  [[nodiscard]] Json host_ms() const;
  [[nodiscard]] Json device_ms() const;
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
  std::optional<DeviceClock> clock_;
  std::vector<double> host_ms_, device_ms_;
};

// How many steps take 50 ms. `milliseconds(count)` takes so many, one queued behind the other, and says how long that
// was: less for each than one alone, which waits for the host, so that what fits one of these may be too few.
[[nodiscard]] int64_t steps_to_time(const std::function<double(int64_t count)>& milliseconds);

// {"median", "p10", "p90"}.
[[nodiscard]] Json spread(const std::vector<double>& milliseconds);

}  // namespace xformer::measure
