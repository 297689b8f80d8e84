// What all optimisers (plan/update_rule.h) share: one update over all parameters at once, with gradient clipping,
// dynamic loss scaling and the skip of steps whose gradient is not finite, all without reading a value back to the
// host.
//
//   g *= 1 / scale;  g *= min(1, clip / (|g| + 1e-6));  then the optimiser's own update
#pragma once

#include <functional>

#include "plan/update_rule.h"
#include "tensor/tensor_file.h"

namespace xformer::training {

struct UpdateOptions {
  std::string optimizer = "adamw";
  plan::OptimizerOptions constants;
  double clip_norm = 0;  // 0: no clipping
  // fp16: the loss is multiplied by a scale that halves when a gradient overflows and doubles after 2,000 good steps
  // (lra-recipe 6.2).
  bool loss_scaling = false;
};

class Optimizer {
 public:
  // Names are those of the model; the state is saved under them. Moves the parameters' values and gradients into flat
  // buffers of their type and device: one for all values, one for all gradients. Call after the model has its device.
  // `decays`: whether weight decay touches a parameter.
  Optimizer(
      NamedTensors parameters, const UpdateOptions& options,
      const std::function<bool(const std::string& name)>& decays = [](const std::string&) { return true; });

  // Takes the gradients away. Autograd then leaves the next ones where they were made, which is a launch for each
  // parameter less than adding them to zeros.
  void zero_gradients();
  // One update with the gradients accumulated so far; learning rate and beta1 are float64 scalars on the device. A
  // gradient that is not finite leaves everything but the loss scale as it is.
  void step(const at::Tensor& learning_rate, const at::Tensor& beta1);

  // The factor for the loss before backward, float32 []; undefined without loss scaling.
  [[nodiscard]] const at::Tensor& loss_scale() const { return scale_; }

  // Device scalars, float64, read when the log is written: norm of the last gradient, 1 if the last step was skipped.
  [[nodiscard]] const at::Tensor& gradient_norm() const { return norm_; }
  [[nodiscard]] const at::Tensor& skipped() const { return skipped_; }

  // "step", each moment of each parameter ("exp_avg.<name>"), with loss scaling "loss_scale" and
  // "loss_scale_good_steps": the tensors themselves, to save or to copy into.
  [[nodiscard]] NamedTensors state() const;

 private:
  NamedTensors parameters_;
  UpdateOptions options_;
  const plan::UpdateRule& rule_;
  // From where autograd left them into the flat buffer, at once; parameters have views of it then.
  void gather_gradients();

  at::Tensor values_, gradients_;           // flat: what decays, then the rest
  std::vector<at::Tensor> gradient_views_;  // by parameter
  at::Tensor zeros_;                        // on a device, where there is no gradient
  std::vector<at::Tensor> moments_;
  int64_t decayed_ = 0;  // elements of what decays
  NamedTensors state_;   // views of the moments by parameter
  at::Tensor step_, norm_, skipped_, factor_, blocks_ready_;
  at::Tensor scale_, good_steps_;
};

}  // namespace xformer::training
