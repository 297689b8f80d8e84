// The CPU's two passes of unit_rows.h, for float and double.
#pragma once

#include "kernels/unit_rows/unit_rows.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor unit_rows_forward_cpu(const at::Tensor& x, const at::Tensor& sigma, double epsilon);
struct UnitRowsGradients {
  at::Tensor x, sigma;
};
[[nodiscard]] UnitRowsGradients unit_rows_backward_cpu(const at::Tensor& gradient, const at::Tensor& x,
                                                       const at::Tensor& sigma, double epsilon);

// Some rows of a head, those of x `stride` apart.
template <class Value>
struct UnitRows {
  int64_t rows, d;
  const Value* x;
  int64_t stride;
  const Value* sigma;  // [d]
  Value epsilon;
};
void scale_rows(const UnitRows<float>& block, float* to);
void scale_rows(const UnitRows<double>& block, double* to);

template <class Value>
struct UnitSlopes {
  const Value* gradient;  // [rows,d], `stride` apart
  int64_t stride;
  Value* x_gradient;  // likewise, `to_stride` apart
  int64_t to_stride;
  Value* d_sigma;  // [d], gains the rows'
};
void scale_gradient_rows(const UnitRows<float>& block, const UnitSlopes<float>& slopes);
void scale_gradient_rows(const UnitRows<double>& block, const UnitSlopes<double>& slopes);

}  // namespace xformer::kernels
