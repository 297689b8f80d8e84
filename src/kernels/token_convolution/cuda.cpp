// The convolution along the sequence on CUDA tensors (part of the plugin).
#include "kernels/token_convolution/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/token_convolution/device.h"

namespace xformer::kernels {

namespace {

at::Tensor convolve_forward_cuda(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w,
                                 const at::Tensor& key_valid) {
  return convolve_forward_device(base, x, w, key_valid, cuda_launch(x, launch_convolution));
}

ConvolutionGradients convolve_backward_cuda(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& w,
                                            const at::Tensor& key_valid) {
  return convolve_backward_device(gradient, x, w, key_valid, cuda_launch(x, launch_convolution));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("convolve_tokens_forward", dispatched<convolve_forward_cuda>);
  library.impl("convolve_tokens_backward", dispatched<convolve_backward_cuda>);
}

}  // namespace xformer::kernels
