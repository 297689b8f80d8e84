// The launches of attention on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_attention_forward(const AttentionArguments& a, const PlaneArguments& planes,
                                                   cudaStream_t stream);
[[nodiscard]] cudaError_t launch_attention_backward(const AttentionArguments& a, const PlaneArguments& planes,
                                                    cudaStream_t stream);

}  // namespace xformer::kernels
