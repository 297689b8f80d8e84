// One softmax over parts on CUDA tensors (part of the plugin).
#include "kernels/joined_softmax/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/joined_softmax/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor joined_forward_cuda(const Tensors& outs, const Tensors& log_sums, int64_t n) {
  return joined_forward_device(outs, log_sums, n, cuda_launch(outs[0], launch_joined_forward));
}

Tensors joined_backward_cuda(const at::Tensor& gradient, const Tensors& outs, const Tensors& log_sums) {
  return joined_backward_device(gradient, outs, log_sums, cuda_launch(gradient, launch_joined_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("joined_softmax_forward", dispatched<joined_forward_cuda>);
  library.impl("joined_softmax_backward", dispatched<joined_backward_cuda>);
}

}  // namespace xformer::kernels
