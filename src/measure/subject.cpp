#include "measure/subject.h"

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
    static_cast<void>(model_->forward(batch_->all().inputs));
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

double Subject::step() {
  const auto start = std::chrono::steady_clock::now();
  const auto mean_since_start = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() /
           static_cast<double>(steps_at_once_);
  };
  for (int64_t i = 0; i < steps_at_once_; ++i) run();
  host_ms_.push_back(mean_since_start());
  synchronize(device_);
  return mean_since_start();
}

void Subject::settle() {
  constexpr double kLeastMilliseconds = 50;
  if (device_.is_cuda()) steps_at_once_ = std::max<int64_t>(1, std::llround(std::ceil(kLeastMilliseconds / step())));
  host_ms_.clear();
}

Json Subject::host_ms() const {
  return device_.is_cuda() && !host_ms_.empty() ? Json(training::quantile(host_ms_, 0.5)) : Json();
}

Json spread(const std::vector<double>& milliseconds) {
  return {{"median", training::quantile(milliseconds, 0.5)},
          {"p10", training::quantile(milliseconds, 0.1)},
          {"p90", training::quantile(milliseconds, 0.9)}};
}

}  // namespace xformer::measure
