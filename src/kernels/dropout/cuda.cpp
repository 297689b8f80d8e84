// xformer::dropout on CUDA tensors (part of the plugin).
#include "kernels/dropout/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/dropout/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

at::Tensor dropout_cuda(const at::Tensor& x, double p, const at::Tensor& state, int64_t site) {
  return dropout_device(x, p, state, site, cuda_launch(x, launch_dropout));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) { library.impl("dropout", dispatched<dropout_cuda>); }

}  // namespace xformer::kernels
