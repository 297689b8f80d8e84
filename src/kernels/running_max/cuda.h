// The launches of running maxima on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/running_max/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_running_max(const RunningMaxArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_running_max_backward(const RunningMaxArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
