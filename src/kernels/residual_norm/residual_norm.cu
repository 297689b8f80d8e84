// Residual and norm on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/residual_norm/cuda.h"

namespace xformer::kernels {

cudaError_t launch_residual_norm_forward(const ResidualNormForwardArguments& a, cudaStream_t stream) {
  return choose_program<CudaTypes>(
      a, [&](const auto& program) { return launch_program(row_forward_grid(a.rows, a.width), program, stream); });
}

cudaError_t launch_residual_norm_backward(const ResidualNormBackwardArguments& a, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_row_backward(a, launch); });
}

}  // namespace xformer::kernels
