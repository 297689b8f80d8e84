// The CPU's two passes of linear.h, for float and double, and for bf16 with weights and biases in float.
#pragma once

#include "kernels/linear/linear.h"

namespace xformer::kernels {

// One bias for each weight, or none at all.
[[nodiscard]] std::vector<at::Tensor> linear_forward_cpu(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                         const std::vector<at::Tensor>& biases,
                                                         const at::Tensor& needed);

struct LinearGradients {
  at::Tensor x;                             // undefined if not wanted
  std::vector<at::Tensor> weights, biases;  // undefined for maps without a gradient
};

// One gradient for each map, undefined where its result was not used; at least one is defined.
[[nodiscard]] LinearGradients linear_backward_cpu(const std::vector<at::Tensor>& gradients, const at::Tensor& x,
                                                  const std::vector<at::Tensor>& weights,
                                                  const std::vector<at::Tensor>& biases, const at::Tensor& needed,
                                                  bool x_wanted);

// rows [count, width] = `row` [width], over and over.
void repeat_row(const float* row, int64_t count, int64_t width, float* rows);
void repeat_row(const double* row, int64_t count, int64_t width, double* rows);

// sums [width] += the rows' sum.
void add_rows(const float* rows, int64_t count, int64_t width, float* sums);
void add_rows(const double* rows, int64_t count, int64_t width, double* sums);

}  // namespace xformer::kernels
