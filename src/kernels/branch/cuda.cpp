// Branches on CUDA tensors (part of the plugin).
#include "kernels/branch/cuda.h"

#include "kernels/branch/device.h"
#include "kernels/device/cuda_launch.h"
#include "kernels/feed_forward/cuda.h"
#include "kernels/linear/cuda.h"
#include "kernels/operator.h"
#include "kernels/residual_norm/cuda.h"

namespace xformer::kernels {

namespace {

BranchForward branch_forward_cuda(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop,
                                  const NormWeights& norm) {
  return branch_forward_device(x, branch, drop, norm, cuda_launch(x, launch_linear_branch),
                               cuda_launch(x, launch_feed_forward_forward));
}

BranchGradients branch_backward_cuda(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                     const BranchForward& made, const Branch& branch, const DropoutPlace& drop,
                                     const at::Tensor& weight) {
  const at::Tensor& on = branch.rows;
  return branch_backward_device(sum_gradient, normed_gradient, made, branch, drop, weight,
                                cuda_launch(on, launch_residual_norm_backward), cuda_launch(on, launch_linear_backward),
                                cuda_launch(on, launch_feed_forward_backward),
                                cuda_launch(on, launch_weight_gradients));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("branch_forward", dispatched<branch_forward_cuda>);
  library.impl("branch_backward", dispatched<branch_backward_cuda>);
}

}  // namespace xformer::kernels
