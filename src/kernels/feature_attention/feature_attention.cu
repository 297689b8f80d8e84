// Feature attention on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/feature_attention/cuda.h"
#include "kernels/feature_attention/stages.h"

namespace xformer::kernels {

cudaError_t launch_feature_stage(const FeatureArguments& a, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_feature_stage<CudaTypes>(a, launch); });
}

}  // namespace xformer::kernels
