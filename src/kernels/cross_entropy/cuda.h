// The launch of cross entropy on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cross_entropy/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_cross_entropy(const CrossEntropyArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
