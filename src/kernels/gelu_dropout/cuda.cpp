// Activation and dropout on CUDA tensors (part of the plugin).
#include "kernels/gelu_dropout/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/gelu_dropout/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

at::Tensor gelu_dropout_forward_cuda(const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
  return gelu_dropout_device({}, x, tanh, drop, cuda_launch(x, launch_gelu_dropout));
}

at::Tensor gelu_dropout_backward_cuda(const at::Tensor& gradient, const at::Tensor& x, bool tanh,
                                      const DropoutPlace& drop) {
  return gelu_dropout_device(gradient, x, tanh, drop, cuda_launch(x, launch_gelu_dropout));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("gelu_dropout_forward", dispatched<gelu_dropout_forward_cuda>);
  library.impl("gelu_dropout_backward", dispatched<gelu_dropout_backward_cuda>);
}

}  // namespace xformer::kernels
