// Dropout on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/dropout/cuda.h"

namespace xformer::kernels {

cudaError_t launch_dropout(const DropoutArguments& a, cudaStream_t stream) {
  return run_dropout<CudaTypes>(a, launched_on(stream));
}

}  // namespace xformer::kernels
