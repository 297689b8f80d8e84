// Linear maps on CUDA tensors (part of the plugin).
#include "kernels/linear/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/linear/normed_device.h"
#include "kernels/operator.h"
#include "kernels/residual_norm/cuda.h"

namespace xformer::kernels {

namespace {

std::vector<at::Tensor> linear_forward_cuda(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                            const std::vector<at::Tensor>& biases, const at::Tensor& needed) {
  return linear_forward_device(x, weights, biases, needed, cuda_launch(x, launch_linear_forward));
}

LinearGradients linear_backward_cuda(const std::vector<at::Tensor>& gradients, const at::Tensor& x,
                                     const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                     const at::Tensor& needed, bool x_wanted) {
  return linear_backward_device(gradients, x, weights, biases, needed, x_wanted, cuda_launch(x, launch_linear_backward),
                                cuda_launch(x, launch_weight_gradients));
}

NormedLinearForward normed_linear_forward_cuda(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                               const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                               const at::Tensor& needed) {
  return normed_linear_forward_device(x, weights, biases, norm, needed, cuda_launch(x, launch_linear_forward));
}

NormedLinearGradients normed_linear_backward_cuda(const std::vector<at::Tensor>& gradients, const at::Tensor& past,
                                                  const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                  const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                                  const at::Tensor& mean, const at::Tensor& rstd,
                                                  const at::Tensor& needed) {
  return normed_linear_backward_device(
      gradients, past, x, weights, biases, norm, mean, rstd, needed, cuda_launch(x, launch_linear_backward),
      cuda_launch(x, launch_residual_norm_backward), cuda_launch(x, launch_weight_gradients));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("linear_forward", dispatched<linear_forward_cuda>);
  library.impl("linear_backward", dispatched<linear_backward_cuda>);
  library.impl("normed_linear_forward", dispatched<normed_linear_forward_cuda>);
  library.impl("normed_linear_backward", dispatched<normed_linear_backward_cuda>);
}

}  // namespace xformer::kernels
