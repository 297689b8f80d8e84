#include "training/adamw.h"

#include <ATen/Functions.h>

namespace xformer::training {

AdamW::AdamW(NamedTensors parameters, const AdamWOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  const at::NoGradGuard no_grad;
  const auto scalar = at::TensorOptions(at::kFloat).device(parameters_.front().second.device());
  step_ = at::zeros({}, scalar);
  learning_rate_ = at::zeros({}, scalar.dtype(at::kDouble));
  norm_ = at::zeros({}, scalar);
  found_inf_ = at::zeros({}, scalar);
  for (const auto& [name, parameter] : parameters_) {
    at::Tensor value = parameter;
    // Gradients live in place from the start: the same memory at every step.
    value.mutable_grad() = at::zeros_like(value);
    values_.push_back(value.detach());
    gradients_.push_back(value.grad());
    first_.push_back(at::zeros_like(values_.back()));
    second_.push_back(at::zeros_like(values_.back()));
    steps_.push_back(step_);  // one counter for all
  }
}

void AdamW::zero_gradients() { at::_foreach_zero_(gradients_); }

void AdamW::step(const ScheduleValues& values) {
  const at::NoGradGuard no_grad;
  norm_.copy_(at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_))));
  found_inf_.copy_(at::isfinite(norm_).logical_not());
  if (options_.clip_norm > 0) at::_foreach_mul_(gradients_, (options_.clip_norm / (norm_ + 1e-6)).clamp_max(1));
  learning_rate_.fill_(values.learning_rate);
  step_.add_(1 - found_inf_);
  at::_fused_adamw_(values_, gradients_, first_, second_, /*max_exp_avg_sqs=*/{}, steps_, learning_rate_, values.beta1,
                    options_.beta2, options_.weight_decay, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                    /*grad_scale=*/std::nullopt, found_inf_);
}

NamedTensors AdamW::state() const {
  NamedTensors result{{"step", step_}};
  for (size_t i = 0; i < parameters_.size(); ++i) {
    result.emplace_back("exp_avg." + parameters_[i].first, first_[i]);
    result.emplace_back("exp_avg_sq." + parameters_[i].first, second_[i]);
  }
  return result;
}

}  // namespace xformer::training
