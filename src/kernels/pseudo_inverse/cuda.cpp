// The pseudo-inverse on CUDA tensors (part of the plugin).
#include "kernels/pseudo_inverse/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/pseudo_inverse/device.h"

namespace xformer::kernels {

namespace {

Inverse pseudo_inverse_forward_cuda(const at::Tensor& a, const at::Tensor& landmarks_valid, int64_t iterations) {
  return pseudo_inverse_forward_device(a, landmarks_valid, iterations, cuda_launch(a, launch_pseudo_inverse_forward));
}

at::Tensor pseudo_inverse_backward_cuda(const at::Tensor& gradient, const at::Tensor& a, const at::Tensor& kept,
                                        const at::Tensor& landmarks_valid, int64_t iterations) {
  return pseudo_inverse_backward_device(gradient, a, kept, landmarks_valid, iterations,
                                        cuda_launch(a, launch_pseudo_inverse_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("pseudo_inverse_forward", dispatched<pseudo_inverse_forward_cuda>);
  library.impl("pseudo_inverse_backward", dispatched<pseudo_inverse_backward_cuda>);
}

}  // namespace xformer::kernels
