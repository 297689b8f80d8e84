// Feature attention on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/feature_attention/cuda.h"
#include "kernels/feature_attention/stages.h"

namespace xformer::kernels {

cudaError_t launch_feature_stage(const FeatureArguments& a, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  run_feature_stage<CudaTypes>(a, [&](const LaunchGrid& grid, const auto& program) {
    if (error == cudaSuccess) error = launch_program(grid, program, stream);
  });
  return error;
}

}  // namespace xformer::kernels
