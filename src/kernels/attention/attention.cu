// Attention on a CUDA device. No LibTorch here.
#include "kernels/attention/cuda.h"

#include "kernels/attention/gradient_program.h"
#include "kernels/device/launch.cuh"

namespace xformer::kernels {

namespace {

cudaError_t launch_pass(const AttentionArguments& a, const PlaneArguments& planes, bool backward, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_attention<CudaTypes>(a, planes, backward, launch); });
}

}  // namespace

cudaError_t launch_attention_forward(const AttentionArguments& a, const PlaneArguments& planes, cudaStream_t stream) {
  return launch_pass(a, planes, /*backward=*/false, stream);
}

cudaError_t launch_attention_backward(const AttentionArguments& a, const PlaneArguments& planes, cudaStream_t stream) {
  return launch_pass(a, planes, /*backward=*/true, stream);
}

}  // namespace xformer::kernels
