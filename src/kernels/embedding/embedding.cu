// The embedding on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/embedding/cuda.h"

namespace xformer::kernels {

cudaError_t launch_embedding(const EmbeddingArguments& a, cudaStream_t stream) {
  return run_embedding(a, launched_on(stream));
}

}  // namespace xformer::kernels
