// Feed-forward parts on a CUDA device. No LibTorch here.
#include "kernels/device/launch.cuh"
#include "kernels/feed_forward/cuda.h"

namespace xformer::kernels {

cudaError_t launch_feed_forward_forward(const FeedForwardArguments& a, cudaStream_t stream) {
  return run_feed_forward<CudaTypes>(a, /*backward=*/false, launched_on(stream));
}

cudaError_t launch_feed_forward_backward(const FeedForwardArguments& a, cudaStream_t stream) {
  return run_feed_forward<CudaTypes>(a, /*backward=*/true, launched_on(stream));
}

}  // namespace xformer::kernels
