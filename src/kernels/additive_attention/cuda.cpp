// Additive attention on CUDA tensors (part of the plugin).
#include "kernels/additive_attention/cuda.h"

#include "kernels/additive_attention/device.h"
#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

AdditiveAttentionForward additive_forward_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               const at::Tensor& w, const AdditiveAttentionOptions& options) {
  return additive_forward_device(q, k, v, w, options, cuda_launch(q, launch_additive_forward));
}

AdditiveAttentionGradients additive_backward_cuda(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                                  const at::Tensor& v, const at::Tensor& w,
                                                  const AdditiveAttentionForward& forward,
                                                  const AdditiveAttentionOptions& options) {
  return additive_backward_device(gradient, q, k, v, w, forward, options, cuda_launch(q, launch_additive_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("additive_attention_forward", dispatched<additive_forward_cuda>);
  library.impl("additive_attention_backward", dispatched<additive_backward_cuda>);
}

}  // namespace xformer::kernels
