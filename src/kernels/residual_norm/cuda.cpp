// Residual and norm on CUDA tensors (part of the plugin).
#include "kernels/residual_norm/cuda.h"
#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/residual_norm/device.h"

namespace xformer::kernels {

namespace {

ResidualNormForward residual_norm_forward_cuda(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                                               const NormWeights& norm, const at::Tensor& needed) {
  return residual_norm_forward_device(x, branch, drop, norm, needed, cuda_launch(x, launch_residual_norm_forward));
}

ResidualNormGradients residual_norm_backward_cuda(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                                  const ResidualNormForward& forward, bool has_branch,
                                                  const DropoutPlace& drop, const at::Tensor& weight,
                                                  const at::Tensor& needed) {
  return residual_norm_backward_device(sum_gradient, normed_gradient, forward, has_branch, drop, weight, needed,
                                       cuda_launch(forward.sum, launch_residual_norm_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("residual_norm_forward", dispatched<residual_norm_forward_cuda>);
  library.impl("residual_norm_backward", dispatched<residual_norm_backward_cuda>);
  library.impl("residual_forward", dispatched<residual_norm_forward_cuda>);
}

}  // namespace xformer::kernels
