// Activation and dropout on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/gelu_dropout/cuda.h"

namespace xformer::kernels {

cudaError_t launch_gelu_dropout(const GeluDropoutArguments& a, cudaStream_t stream) {
  return run_gelu<CudaTypes>(a, launched_on(stream));
}

}  // namespace xformer::kernels
