// The CPU's two passes of token_mean.h, for float, double and bf16.
#pragma once

#include "kernels/token_mean/pass.h"

namespace xformer::kernels {

[[nodiscard]] TokenMeans token_mean_forward_cpu(const at::Tensor& x, const TokenMeanOptions& options);
[[nodiscard]] at::Tensor token_mean_backward_cpu(const at::Tensor& gradient, const at::Tensor& share, int64_t n,
                                                 const TokenMeanOptions& options);

}  // namespace xformer::kernels
