// Rolled rows on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/rolled_rows/cuda.h"

namespace xformer::kernels {

cudaError_t launch_rolled_forward(const RolledArguments& a, cudaStream_t stream) {
  return run_rolled(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_rolled_backward(const RolledArguments& a, cudaStream_t stream) {
  return run_rolled(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
