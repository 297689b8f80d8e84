// The norm of gradients on CUDA tensors (part of the plugin).
#include "kernels/gradient_norm/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/gradient_norm/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

void gradient_norm_cuda(const at::Tensor& gradients, const at::Tensor& loss_scale, double clip,
                        const GradientControls& controls) {
  gradient_norm_device(gradients, loss_scale, clip, controls, cuda_launch(gradients, launch_gradient_norm));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) { library.impl("gradient_norm", dispatched<gradient_norm_cuda>); }

}  // namespace xformer::kernels
