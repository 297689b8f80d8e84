// Rows of unit length with a scale for each channel of a head (Peng et al., "Random Feature Attention", 2021, sections
// 3.1 and A.2):
//   x' = sigma x / sqrt(|x|^2 + epsilon)
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// x [b,h,n,d], sigma [h,d] -> [b,h,n,d], contiguous. Strides of x are free.
[[nodiscard]] at::Tensor unit_rows(const at::Tensor& x, const at::Tensor& sigma, double epsilon);

// The definition.
[[nodiscard]] at::Tensor unit_rows_reference(const at::Tensor& x, const at::Tensor& sigma, double epsilon);

}  // namespace xformer::kernels
