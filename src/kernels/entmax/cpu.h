// The CPU's two passes of entmax.h, for float and double, and their loops over a row.
#pragma once

#include "kernels/entmax/entmax.h"
#include "kernels/entmax/power.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor entmax_forward_cpu(const at::Tensor& scores, const at::Tensor& alpha,
                                            const EntmaxOptions& options);

struct EntmaxGradients {
  at::Tensor scores, alpha;
};

[[nodiscard]] EntmaxGradients entmax_backward_cpu(const at::Tensor& gradient, const at::Tensor& p,
                                                  const at::Tensor& alpha, const EntmaxOptions& options);

// scores [count] -> p [count], b = alpha - 1.
void entmax_row(const float* scores, int64_t count, EntmaxPower power, float b, float no_key, float* p);
void entmax_row(const double* scores, int64_t count, EntmaxPower power, double b, double no_key, double* p);
// From p and its gradient that of the scores; returns that of alpha for kAny, else 0.
float entmax_row_gradients(const float* p, const float* gradient, int64_t count, EntmaxPower power, float b,
                           float* scores);
double entmax_row_gradients(const double* p, const double* gradient, int64_t count, EntmaxPower power, double b,
                            double* scores);

}  // namespace xformer::kernels
