// The norm of gradients on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/gradient_norm/cuda.h"

namespace xformer::kernels {

cudaError_t launch_gradient_norm(const GradientNormArguments& a, cudaStream_t stream) {
  return run_gradient_norm(a, launched_on(stream));
}

}  // namespace xformer::kernels
