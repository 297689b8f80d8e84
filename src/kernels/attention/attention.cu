// Attention on a CUDA device. No LibTorch here.
#include "kernels/attention/cuda.h"

#include "kernels/attention/gradient_program.h"
#include "kernels/device/launch.cuh"

namespace xformer::kernels {

namespace {

cudaError_t launch_pass(const AttentionArguments& a, bool backward, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_attention<CudaTypes>(a, backward, launch); });
}

}  // namespace

cudaError_t launch_attention_forward(const AttentionArguments& a, cudaStream_t stream) {
  return launch_pass(a, /*backward=*/false, stream);
}

cudaError_t launch_attention_backward(const AttentionArguments& a, cudaStream_t stream) {
  return launch_pass(a, /*backward=*/true, stream);
}

}  // namespace xformer::kernels
