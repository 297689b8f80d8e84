// The launches of rolled rows on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/rolled_rows/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_rolled_forward(const RolledArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_rolled_backward(const RolledArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
