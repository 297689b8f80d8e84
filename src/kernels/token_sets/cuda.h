// The launches of sets' largest rows on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/token_sets/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_set_max(const SetMaxArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_set_max_backward(const SetMaxArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
