// Attention over listed keys on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/listed_attention/cuda.h"
#include "kernels/listed_attention/gradient_programs.h"

namespace xformer::kernels {

namespace {

cudaError_t launch_listed_pass(const ListedArguments& a, bool backward, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_listed_attention<CudaTypes>(a, backward, launch); });
}

}  // namespace

cudaError_t launch_listed_attention_forward(const ListedArguments& a, cudaStream_t stream) {
  return launch_listed_pass(a, /*backward=*/false, stream);
}

cudaError_t launch_listed_attention_backward(const ListedArguments& a, cudaStream_t stream) {
  return launch_listed_pass(a, /*backward=*/true, stream);
}

}  // namespace xformer::kernels
