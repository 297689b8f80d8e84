// Attention on CUDA tensors (part of the plugin).
#include "kernels/attention/cuda.h"

#include "kernels/attention/device.h"
#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

AttentionForward attention_forward_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const AttentionOptions& options) {
  return attention_forward_device(q, k, v, options, cuda_launch(q, launch_attention_forward));
}

AttentionGradients attention_backward_cuda(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const AttentionForward& forward,
                                           const AttentionOptions& options) {
  return attention_backward_device(gradient, q, k, v, forward, options, cuda_launch(q, launch_attention_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("attention_forward", dispatched<attention_forward_cuda>);
  library.impl("attention_backward", dispatched<attention_backward_cuda>);
}

}  // namespace xformer::kernels
