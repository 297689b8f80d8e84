// The launches of feed-forward parts on a CUDA device, between host code that knows LibTorch and device code that does
// not. The gradients of their weights are linear maps' (linear/cuda.h).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/feed_forward/program.h"

namespace xformer::kernels {

[[nodiscard]] cudaError_t launch_feed_forward_forward(const FeedForwardArguments& a, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_feed_forward_backward(const FeedForwardArguments& a, cudaStream_t stream);

}  // namespace xformer::kernels
