// Additive attention on a CUDA device. No LibTorch here.
#include "kernels/additive_attention/cuda.h"
#include "kernels/additive_attention/gradient_programs.h"
#include "kernels/device/launch.cuh"

namespace xformer::kernels {

namespace {

cudaError_t launch_additive_pass(const AdditiveArguments& a, bool backward, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_additive_attention(a, backward, launch); });
}

}  // namespace

cudaError_t launch_additive_forward(const AdditiveArguments& a, cudaStream_t stream) {
  return launch_additive_pass(a, /*backward=*/false, stream);
}

cudaError_t launch_additive_backward(const AdditiveArguments& a, cudaStream_t stream) {
  return launch_additive_pass(a, /*backward=*/true, stream);
}

}  // namespace xformer::kernels
