// Feed-forward parts on CUDA tensors (part of the plugin).
#include "kernels/feed_forward/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/feed_forward/device.h"
#include "kernels/linear/cuda.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

FeedForwardForward feed_forward_forward_cuda(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                                             const DropoutPlace& drop, const at::Tensor& needed) {
  return feed_forward_forward_device(x, in, out, tanh, drop, needed, cuda_launch(x, launch_feed_forward_forward));
}

FeedForwardGradients feed_forward_backward_cuda(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& z,
                                                const LinearMap& in, const LinearMap& out, bool tanh,
                                                const DropoutPlace& drop, const at::Tensor& needed, bool x_wanted) {
  return feed_forward_backward_device(gradient, x, z, in, out, tanh, drop, needed, x_wanted,
                                      cuda_launch(x, launch_feed_forward_backward),
                                      cuda_launch(x, launch_weight_gradients));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("feed_forward_forward", dispatched<feed_forward_forward_cuda>);
  library.impl("feed_forward_backward", dispatched<feed_forward_backward_cuda>);
}

}  // namespace xformer::kernels
