// The launch of AdamW on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/adamw/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_adamw(const AdamWArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
