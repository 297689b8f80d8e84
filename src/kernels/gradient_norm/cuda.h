// The launch of the norm of gradients on a CUDA device, between host code that knows LibTorch and device code that
// does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/gradient_norm/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_gradient_norm(const GradientNormArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
