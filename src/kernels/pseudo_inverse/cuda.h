// The launches of the pseudo-inverse on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/pseudo_inverse/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_pseudo_inverse_forward(const PseudoInverseArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_pseudo_inverse_backward(const PseudoInverseArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
