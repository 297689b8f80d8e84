// Attention by alpha-entmax on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/entmax_attention/cuda.h"
#include "kernels/entmax_attention/gradient_programs.h"

namespace xformer::kernels {

namespace {

cudaError_t launch_entmax_pass(const EntmaxArguments& a, bool backward, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_entmax_attention(a, backward, launch); });
}

}  // namespace

cudaError_t launch_entmax_attention_forward(const EntmaxArguments& a, cudaStream_t stream) {
  return launch_entmax_pass(a, /*backward=*/false, stream);
}

cudaError_t launch_entmax_attention_backward(const EntmaxArguments& a, cudaStream_t stream) {
  return launch_entmax_pass(a, /*backward=*/true, stream);
}

}  // namespace xformer::kernels
