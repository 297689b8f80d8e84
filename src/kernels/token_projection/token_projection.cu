// Mixtures of tokens on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/token_projection/cuda.h"

namespace xformer::kernels {

cudaError_t launch_projection(const ProjectionArguments& a, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_projection<CudaTypes>(a, launch); });
}

}  // namespace xformer::kernels
