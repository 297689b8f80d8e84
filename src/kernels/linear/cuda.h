// The launches of linear maps on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/linear/weight_gradients.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_linear_forward(const LinearArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_linear_backward(const LinearArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_weight_gradients(const WeightGradientArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
