#include "kernels/gradient_norm/gradient_norm.h"

#include <ATen/Functions.h>

#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

// A CPU runs the definition: the norm is one pass, and the rest a handful of numbers.
const Operator<gradient_norm_reference> gradient_norm_operator{"gradient_norm"};

}  // namespace

void gradient_norm(const at::Tensor& gradients, const at::Tensor& loss_scale, double clip,
                   const GradientControls& controls) {
  const at::NoGradGuard no_grad;
  if (gradients.is_cpu() || !gradient_norm_operator.runs_on(gradients) || !fit_kernels({gradients}))
    return gradient_norm_reference(gradients, loss_scale, clip, controls);
  gradient_norm_operator(gradients, loss_scale, clip, controls);
}

void gradient_norm_reference(const at::Tensor& gradients, const at::Tensor& loss_scale, double clip,
                             const GradientControls& controls) {
  const auto& [norm, factor, skip, step, ready] = controls;
  norm.copy_(at::linalg_vector_norm(gradients));
  factor.fill_(1);
  if (loss_scale.defined()) {
    factor.div_(loss_scale);
    norm.mul_(factor);
  }
  skip.copy_(at::isfinite(norm).logical_not());
  if (clip > 0) factor.mul_((clip / (norm + 1e-6)).clamp_max(1));
  step.add_(1 - skip);
}

}  // namespace xformer::kernels
