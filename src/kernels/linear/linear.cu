// Linear maps on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/linear/cuda.h"

namespace xformer::kernels {

cudaError_t launch_linear_forward(const LinearArguments& a, cudaStream_t stream) {
  return run_linear<CudaTypes>(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_linear_backward(const LinearArguments& a, cudaStream_t stream) {
  return run_linear<CudaTypes>(a, /*backward=*/true, launched_on(stream));
}

cudaError_t launch_weight_gradients(const WeightGradientArguments& a, cudaStream_t stream) {
  return launch_all(stream, [&](const auto& launch) { run_weight_gradients<CudaTypes>(a, launch); });
}

}  // namespace xformer::kernels
