// The launches of the mean over tokens on a CUDA device, between host code that knows LibTorch and device code that
// does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/token_mean/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_token_mean_forward(const TokenMeanArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_token_mean_backward(const TokenMeanArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
