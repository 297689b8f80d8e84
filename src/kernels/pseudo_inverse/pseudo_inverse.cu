// The pseudo-inverse on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/pseudo_inverse/cuda.h"

namespace xformer::kernels {

cudaError_t launch_pseudo_inverse_forward(const PseudoInverseArguments& a, cudaStream_t stream) {
  return run_pseudo_inverse(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_pseudo_inverse_backward(const PseudoInverseArguments& a, cudaStream_t stream) {
  return run_pseudo_inverse(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
