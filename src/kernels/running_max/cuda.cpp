// Running maxima on CUDA tensors (part of the plugin).
#include "kernels/running_max/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/running_max/device.h"

namespace xformer::kernels {

namespace {

at::Tensor running_max_forward_cuda(const at::Tensor& x, const RunningMaxOptions& options) {
  return running_max_on_device(x, {}, options, cuda_launch(x, launch_running_max));
}

at::Tensor running_max_backward_cuda(const at::Tensor& gradient, const at::Tensor& x,
                                     const RunningMaxOptions& options) {
  return running_max_on_device(x, gradient, options, cuda_launch(x, launch_running_max_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("running_max_forward", dispatched<running_max_forward_cuda>);
  library.impl("running_max_backward", dispatched<running_max_backward_cuda>);
}

}  // namespace xformer::kernels
