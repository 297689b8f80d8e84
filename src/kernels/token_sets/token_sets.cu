// Sets' largest rows on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/token_sets/cuda.h"

namespace xformer::kernels {

cudaError_t launch_set_max(const SetMaxArguments& a, cudaStream_t stream) {
  return run_set_max(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_set_max_backward(const SetMaxArguments& a, cudaStream_t stream) {
  return run_set_max(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
