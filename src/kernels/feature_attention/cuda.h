// The launches of feature attention on a CUDA device, between host code that knows LibTorch and device code that does
// not.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/feature_attention/program.h"

namespace xformer::kernels {

// Those of one stage.
[[nodiscard]] cudaError_t launch_feature_stage(const FeatureArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
