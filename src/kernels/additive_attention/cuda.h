// The launches of additive attention on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/additive_attention/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_additive_forward(const AdditiveArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_additive_backward(const AdditiveArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
