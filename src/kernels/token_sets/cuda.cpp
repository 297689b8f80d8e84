// Sets' largest rows on CUDA tensors (part of the plugin). Attention within sets has no kernel there.
#include "kernels/token_sets/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/token_sets/device.h"

namespace xformer::kernels {

namespace {

at::Tensor set_max_forward_cuda(const at::Tensor& x, const TokenSets& sets) {
  return set_max_forward_device(x, sets, cuda_launch(x, launch_set_max));
}

at::Tensor set_max_backward_cuda(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out,
                                 const TokenSets& sets) {
  return set_max_backward_device(gradient, x, out, sets, cuda_launch(x, launch_set_max_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("set_max_forward", dispatched<set_max_forward_cuda>);
  library.impl("set_max_backward", dispatched<set_max_backward_cuda>);
}

}  // namespace xformer::kernels
