// The embedding on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/embedding/cuda.h"

namespace xformer::kernels {

cudaError_t launch_embedding(const EmbeddingArguments& a, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_embedding(a, launch); });
}

}  // namespace xformer::kernels
