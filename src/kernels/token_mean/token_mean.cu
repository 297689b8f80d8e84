// The mean over tokens on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/token_mean/cuda.h"

namespace xformer::kernels {

cudaError_t launch_token_mean_forward(const TokenMeanArguments& a, cudaStream_t stream) {
  return run_token_mean(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_token_mean_backward(const TokenMeanArguments& a, cudaStream_t stream) {
  return run_token_mean(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
