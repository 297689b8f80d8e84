#include "training/adamw.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"

namespace xformer::training {

namespace {

constexpr double kFirstScale = 65536, kGrowth = 2, kBackoff = 0.5;
constexpr int64_t kGrowthInterval = 2000;
constexpr int64_t kAlignment = 64;  // elements: every parameter begins where vector loads and matrix products like it

}  // namespace

AdamW::AdamW(NamedTensors parameters, const AdamWOptions& options,
             const std::function<bool(const std::string& name)>& decays)
    : parameters_(std::move(parameters)), options_(options) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions type = parameters_.front().second.options();
  std::stable_partition(parameters_.begin(), parameters_.end(), [&](const auto& entry) { return decays(entry.first); });
  int64_t size = 0;
  for (const auto& [name, parameter] : parameters_) {
    XF_ASSERT(parameter.scalar_type() == c10::typeMetaToScalarType(type.dtype()) && parameter.device() == type.device(),
              "parameter {} has another type or device than the first", name);
    size += (parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
    if (decays(name)) decayed_ = size;
  }
  values_ = at::zeros({size}, type);  // the gaps stay zero, in values, gradients and moments
  gradients_ = at::zeros_like(values_);
  first_ = at::zeros_like(values_);
  second_ = at::zeros_like(values_);
  int64_t place = 0;
  for (const auto& [name, parameter] : parameters_) {
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, place, parameter.numel()).view(parameter.sizes());
    };
    at::Tensor value = parameter;
    view(values_).copy_(value);
    value.set_data(view(values_));
    // Gradients live in place from the start: the same memory at every step.
    value.mutable_grad() = view(gradients_);
    first_views_.push_back(view(first_));
    second_views_.push_back(view(second_));
    place += (parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const at::TensorOptions scalar = type.dtype(at::kDouble);
  step_ = at::zeros({}, scalar);
  norm_ = at::zeros({}, scalar);
  skipped_ = at::zeros({}, scalar);
  if (!options_.loss_scaling) return;
  scale_ = at::full({}, kFirstScale, type.dtype(at::kFloat));
  good_steps_ = at::zeros({}, type.dtype(at::kInt));
}

void AdamW::zero_gradients() { gradients_.zero_(); }

void AdamW::step(const at::Tensor& learning_rate, const at::Tensor& beta1) {
  const at::NoGradGuard no_grad;
  norm_.copy_(at::linalg_vector_norm(gradients_));
  at::Tensor factor = at::ones_like(norm_);
  if (options_.loss_scaling) {
    factor.div_(scale_);
    norm_.mul_(factor);
  }
  skipped_.copy_(at::isfinite(norm_).logical_not());
  if (options_.clip_norm > 0) factor.mul_((options_.clip_norm / (norm_ + 1e-6)).clamp_max(1));
  step_.add_(1 - skipped_);
  const auto update = [&](int64_t begin, int64_t count, double decay) {
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, begin, count); };
    kernels::AdamWConstants constants = options_.constants;
    constants.weight_decay = decay;
    if (count > 0)
      kernels::adamw(part(values_), part(gradients_), part(first_), part(second_),
                     {learning_rate, beta1, factor, step_, skipped_}, constants);
  };
  update(0, decayed_, options_.constants.weight_decay);
  update(decayed_, values_.numel() - decayed_, 0);
  if (options_.loss_scaling)
    at::_amp_update_scale_(scale_, good_steps_, skipped_.to(at::kFloat), kGrowth, kBackoff, kGrowthInterval);
}

NamedTensors AdamW::state() const {
  NamedTensors result{{"step", step_}};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    result.emplace_back("exp_avg." + parameters_[i].first, first_views_[i]);
    result.emplace_back("exp_avg_sq." + parameters_[i].first, second_views_[i]);
  }
  if (options_.loss_scaling) {
    result.emplace_back("loss_scale", scale_);
    result.emplace_back("loss_scale_good_steps", good_steps_);
  }
  return result;
}

}  // namespace xformer::training
