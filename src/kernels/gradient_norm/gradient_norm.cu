// The norm of gradients on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/gradient_norm/cuda.h"

namespace xformer::kernels {

cudaError_t launch_gradient_norm(const GradientNormArguments& a, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  run_programs(a, [&](const LaunchGrid& grid, const auto& program) {
    if (error == cudaSuccess) error = launch_program(grid, program, stream);
  });
  return error;
}

}  // namespace xformer::kernels
