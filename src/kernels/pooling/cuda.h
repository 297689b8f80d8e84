// The launch of pooling and repeating on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/pooling/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_pooling(const PoolArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_repeating(const PoolArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
