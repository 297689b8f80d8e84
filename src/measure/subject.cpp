#include "measure/subject.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tensor/device.h"
#include "training/record.h"

namespace xformer::measure {

Subject::Subject(const BenchCase& wanted, bool trains, const at::Device& device, const training::Recorder& recorder)
    : device_(device),
      options_(plan::training_schema().read(wanted.plan.group("training"))),
      host_(bench_batch(wanted)) {
  model_ = models::all_families().get(wanted.plan.family).build(wanted.request);
  model_->to(device_);
  if (trains) {
    training_ = std::make_unique<training::TrainStep>(*model_, wanted.shape, options_, device_, recorder);
    return;
  }
  training::set_float_products(options_.precision, device_);
  model_->eval();
  batch_ = std::make_unique<tasks::DeviceBatch>(device_, wanted.batch, wanted.length, wanted.shape);
  const auto forward = [this] {
    const AutocastScope autocast(device_.type(), training::product_type(options_.precision));
    static_cast<void>(model_->forward(batch_->widened().inputs));
  };
  inference_ =
      std::make_unique<training::Replay>(fmt::format("forward pass of length {}", wanted.length), forward, recorder);
}

void Subject::run() {
  if (training_) return training_->run(host_, steps_++, {options_.learning_rate, options_.beta1});
  const at::NoGradGuard no_grad;
  batch_->load(host_);
  inference_->run();
}

StepTime Subject::step() {
  const auto start = std::chrono::steady_clock::now();
  const auto mean_since_start = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() /
           static_cast<double>(steps_at_once_);
  };
  if (clock_) clock_->restart(), clock_->mark();
  for (int64_t i = 0; i < steps_at_once_; ++i) run();
  StepTime time;
  if (clock_) clock_->mark(), time.host_ms = mean_since_start();
  synchronize(device_);
  time.ms = mean_since_start();
  if (clock_) {
    time.device_ms = 1e3 * clock_->seconds(0, 1) / static_cast<double>(steps_at_once_);
    host_ms_.push_back(*time.host_ms), device_ms_.push_back(*time.device_ms);
  }
  return time;
}

void Subject::settle() {
  if (device_.is_cpu()) return;
  clock_.emplace(device_);
  steps_at_once_ = steps_to_time([this](int64_t count) {
    steps_at_once_ = count;
    return *step().device_ms * static_cast<double>(count);
  });
  host_ms_.clear(), device_ms_.clear();
}

int64_t steps_to_time(const std::function<double(int64_t count)>& milliseconds) {
  constexpr double kLeastMilliseconds = 50;
  constexpr int64_t kMost = 1000;  // no step takes less than 50 us
  int64_t count = 1;
  while (count < kMost) {
    const double taken = milliseconds(count);
    if (taken >= kLeastMilliseconds) break;
    const double each = std::max(taken / static_cast<double>(count), kLeastMilliseconds / kMost);
    count = std::max<int64_t>(count + 1, std::llround(std::ceil(kLeastMilliseconds / each)));
  }
  return std::min(count, kMost);
}

Json Subject::host_ms() const { return host_ms_.empty() ? Json() : Json(training::quantile(host_ms_, 0.5)); }
Json Subject::device_ms() const { return device_ms_.empty() ? Json() : Json(training::quantile(device_ms_, 0.5)); }

Json spread(const std::vector<double>& milliseconds) {
  return {{"median", training::quantile(milliseconds, 0.5)},
          {"p10", training::quantile(milliseconds, 0.1)},
          {"p90", training::quantile(milliseconds, 0.9)}};
}

}  // namespace xformer::measure
