// The launches of mixtures of tokens on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/token_projection/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_projection(const ProjectionArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
