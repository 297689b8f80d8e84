// The launches of residual and norm on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/residual_norm/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_residual_norm_forward(const ResidualNormForwardArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_residual_norm_backward(const ResidualNormBackwardArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
