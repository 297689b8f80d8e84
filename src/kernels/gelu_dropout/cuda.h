// The launch of activation and dropout on a CUDA device, between host code that knows LibTorch and device code that
// does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/gelu_dropout/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_gelu_dropout(const GeluDropoutArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
