// The mean over tokens on CUDA tensors (part of the plugin).
#include "kernels/token_mean/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/token_mean/device.h"

namespace xformer::kernels {

namespace {

TokenMeans token_mean_forward_cuda(const at::Tensor& x, const TokenMeanOptions& options) {
  return token_mean_forward_device(x, options, cuda_launch(x, launch_token_mean_forward));
}

at::Tensor token_mean_backward_cuda(const at::Tensor& gradient, const at::Tensor& share, int64_t n,
                                    const TokenMeanOptions& options) {
  return token_mean_backward_device(gradient, share, n, options, cuda_launch(gradient, launch_token_mean_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("token_mean_forward", dispatched<token_mean_forward_cuda>);
  library.impl("token_mean_backward", dispatched<token_mean_backward_cuda>);
}

}  // namespace xformer::kernels
