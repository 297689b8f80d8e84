// The launches of the convolution along the sequence on a CUDA device, between host code that knows LibTorch and device
// code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/token_convolution/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_convolution(const ConvolutionArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
