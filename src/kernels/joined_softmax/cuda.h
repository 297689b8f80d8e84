// The launches of one softmax over parts on a CUDA device, between host code that knows LibTorch and device code that
// does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/joined_softmax/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_joined_forward(const JoinedArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_joined_backward(const JoinedArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
