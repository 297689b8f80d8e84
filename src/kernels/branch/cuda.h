// The launch of a linear map with its residual and norm on a CUDA device, between host code that knows LibTorch and
// device code that does not. The others are those of the operators that branch.h joins.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/branch/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_linear_branch(const LinearBranchArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
