// Running maxima on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/running_max/cuda.h"

namespace xformer::kernels {

cudaError_t launch_running_max(const RunningMaxArguments& a, cudaStream_t stream) {
  return run_running_max(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_running_max_backward(const RunningMaxArguments& a, cudaStream_t stream) {
  return run_running_max(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
