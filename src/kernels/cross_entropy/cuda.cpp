// Cross entropy on CUDA tensors (part of the plugin).
#include "kernels/cross_entropy/cuda.h"

#include "kernels/cross_entropy/device.h"
#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

CrossEntropyForward cross_entropy_forward_cuda(const ClassRows& rows, double smoothing) {
  return cross_entropy_device(rows, smoothing, cuda_launch(rows.scores, launch_cross_entropy));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("cross_entropy_forward", dispatched<cross_entropy_forward_cuda>);
}

}  // namespace xformer::kernels
