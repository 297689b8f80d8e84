// The launches of attention over windows on a CUDA device, between host code that knows LibTorch and device code that
// does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/window_attention/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_window_attention_forward(const WindowArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_window_attention_backward(const WindowArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
