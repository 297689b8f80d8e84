// The launch of a step's sums on a CUDA device, between host code that knows LibTorch and device code that does not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/step_sums/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_step_sums(const StepSumsArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
