// The CPU's two passes of sine_features.h, for float and double.
#pragma once

#include "kernels/sine_features/sine_features.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor sine_features_forward_cpu(const at::Tensor& y, double amplitude);
// From the gradient of the features and these themselves: a sine's slope is the cosine beside it.
[[nodiscard]] at::Tensor sine_features_backward_cpu(const at::Tensor& gradient, const at::Tensor& features);

// A row: y [r] to features [2 r].
void sine_row(const float* y, int64_t r, float amplitude, float* features);
void sine_row(const double* y, int64_t r, double amplitude, double* features);
void sine_gradient_row(const float* gradient, const float* features, int64_t r, float* y_gradient);
void sine_gradient_row(const double* gradient, const double* features, int64_t r, double* y_gradient);

}  // namespace xformer::kernels
