// Attention over windows on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/window_attention/cuda.h"
#include "kernels/window_attention/gradient_programs.h"

namespace xformer::kernels {

namespace {

cudaError_t launch_window_pass(const WindowArguments& a, bool backward, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_window_attention<CudaTypes>(a, backward, launch); });
}

}  // namespace

cudaError_t launch_window_attention_forward(const WindowArguments& a, cudaStream_t stream) {
  return launch_window_pass(a, /*backward=*/false, stream);
}

cudaError_t launch_window_attention_backward(const WindowArguments& a, cudaStream_t stream) {
  return launch_window_pass(a, /*backward=*/true, stream);
}

}  // namespace xformer::kernels
