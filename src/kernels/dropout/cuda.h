// The launch of dropout on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/dropout/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_dropout(const DropoutArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
