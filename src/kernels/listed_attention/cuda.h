// The launches of attention over listed keys on a CUDA device, between host code that knows LibTorch and device code
// that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/listed_attention/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_listed_attention_forward(const ListedArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_listed_attention_backward(const ListedArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
