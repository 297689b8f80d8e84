// The CPU's two passes of gelu_dropout.h, for float, double and bf16.
#pragma once

#include "kernels/gelu_dropout/gelu_dropout.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor gelu_dropout_forward_cpu(const at::Tensor& x, bool tanh, const DropoutPlace& drop);
[[nodiscard]] at::Tensor gelu_dropout_backward_cpu(const at::Tensor& gradient, const at::Tensor& x, bool tanh,
                                                   const DropoutPlace& drop);

// Some elements. `draws`: 16 bits an element, or nullptr without dropout.
template <class Value>
struct GeluRun {
  int64_t count;
  bool tanh;
  const uint16_t* draws;
  uint32_t threshold;
  Value keep;

  // Elements first .. first + some - 1.
  [[nodiscard]] GeluRun part(int64_t first, int64_t some) const {
    return {some, tanh, draws == nullptr ? nullptr : draws + first, threshold, keep};
  }
};
void gelu_run(const GeluRun<float>& run, const float* x, float* out);
void gelu_run(const GeluRun<double>& run, const double* x, double* out);
void gelu_gradient_run(const GeluRun<float>& run, const float* x, const float* gradient, float* x_gradient);
void gelu_gradient_run(const GeluRun<double>& run, const double* x, const double* gradient, double* x_gradient);

// Both at once: out = drop(gelu(x)), gradient -> drop(gradient) gelu'(x), in place.
void gelu_both_run(const GeluRun<float>& run, const float* x, float* out, float* gradient);
void gelu_both_run(const GeluRun<double>& run, const double* x, double* out, double* gradient);

}  // namespace xformer::kernels
