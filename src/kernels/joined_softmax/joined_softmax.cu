// One softmax over parts on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/joined_softmax/cuda.h"

namespace xformer::kernels {

cudaError_t launch_joined_forward(const JoinedArguments& a, cudaStream_t stream) {
  return run_joined(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_joined_backward(const JoinedArguments& a, cudaStream_t stream) {
  return run_joined(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
