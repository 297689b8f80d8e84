// Pooling and repeating on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/pooling/cuda.h"

namespace xformer::kernels {

cudaError_t launch_pooling(const PoolArguments& a, cudaStream_t stream) {
  return run_pool<CudaTypes, true>(a, launched_on(stream));
}

cudaError_t launch_repeating(const PoolArguments& a, cudaStream_t stream) {
  return run_pool<CudaTypes, false>(a, launched_on(stream));
}

}  // namespace xformer::kernels
