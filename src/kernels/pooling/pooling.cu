// Pooling and repeating on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/pooling/cuda.h"

namespace xformer::kernels {

cudaError_t launch_pooling(const PoolArguments& a, cudaStream_t stream) {
  return launch_program(pool_grid(a), PoolProgram<true>{a}, stream);
}

cudaError_t launch_repeating(const PoolArguments& a, cudaStream_t stream) {
  return launch_program(pool_grid(a), PoolProgram<false>{a}, stream);
}

}  // namespace xformer::kernels
