// Rolled rows on CUDA tensors (part of the plugin).
#include "kernels/rolled_rows/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/rolled_rows/device.h"

namespace xformer::kernels {

namespace {

at::Tensor rolled_forward_cuda(const at::Tensor& v, const at::Tensor& w, const RolledRowsOptions& options) {
  return rolled_forward_device(v, w, options, cuda_launch(v, launch_rolled_forward));
}

RolledGradients rolled_backward_cuda(const at::Tensor& gradient, const at::Tensor& v, const at::Tensor& w,
                                     const RolledRowsOptions& options) {
  return rolled_backward_device(gradient, v, w, options, cuda_launch(v, launch_rolled_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("rolled_rows_forward", dispatched<rolled_forward_cuda>);
  library.impl("rolled_rows_backward", dispatched<rolled_backward_cuda>);
}

}  // namespace xformer::kernels
