// Mixtures of tokens on CUDA tensors (part of the plugin).
#include "kernels/token_projection/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/token_projection/device.h"

namespace xformer::kernels {

namespace {

at::Tensor project_forward_cuda(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                const at::Tensor& key_valid) {
  return project_forward_device(projection, x, y, key_valid, cuda_launch(x, launch_projection));
}

ProjectionGradients project_backward_cuda(const at::Tensor& x_gradient, const at::Tensor& y_gradient,
                                          const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                          const at::Tensor& key_valid) {
  return project_backward_device(x_gradient, y_gradient, projection, x, y, key_valid,
                                 cuda_launch(x, launch_projection));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("project_tokens_forward", dispatched<project_forward_cuda>);
  library.impl("project_tokens_backward", dispatched<project_backward_cuda>);
}

}  // namespace xformer::kernels
