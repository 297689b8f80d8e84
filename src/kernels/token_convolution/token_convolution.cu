// The convolution along the sequence on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/token_convolution/cuda.h"

namespace xformer::kernels {

cudaError_t launch_convolution(const ConvolutionArguments& a, cudaStream_t stream) {
  return run_convolution(a, launched_on(stream));
}

}  // namespace xformer::kernels
