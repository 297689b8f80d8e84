// AdamW on CUDA tensors (part of the plugin).
#include "kernels/adamw/cuda.h"

#include "kernels/adamw/device.h"
#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

void adamw_cuda(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
                const AdamWControls& controls, const AdamWConstants& constants) {
  adamw_device(x, gradient, m, v, controls, constants, cuda_launch(x, launch_adamw));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) { library.impl("adamw", dispatched<adamw_cuda>); }

}  // namespace xformer::kernels
