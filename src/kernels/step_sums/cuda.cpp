// A step's sums on CUDA tensors (part of the plugin).
#include "kernels/step_sums/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/step_sums/device.h"

namespace xformer::kernels {

namespace {

void add_step_sums_cuda(const at::Tensor& meter, const at::Tensor& sums, const at::Tensor& skipped) {
  step_sums_device(meter, sums, skipped, cuda_launch(meter, launch_step_sums));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) { library.impl("add_step_sums", dispatched<add_step_sums_cuda>); }

}  // namespace xformer::kernels
