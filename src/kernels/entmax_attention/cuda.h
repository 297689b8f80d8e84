// The launches of attention by alpha-entmax on a CUDA device, between host code that knows LibTorch and device code
// that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/entmax_attention/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_entmax_attention_forward(const EntmaxArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_entmax_attention_backward(const EntmaxArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
