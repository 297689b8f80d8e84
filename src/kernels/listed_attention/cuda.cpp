// Attention over listed keys on CUDA tensors (part of the plugin).
#include "kernels/listed_attention/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/listed_attention/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

ListedAttentionForward listed_attention_forward_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const at::Tensor& bias, const ListedAttentionOptions& options) {
  return listed_attention_forward_device(q, k, v, bias, options, cuda_launch(q, launch_listed_attention_forward));
}

ListedAttentionGradients listed_attention_backward_cuda(const at::Tensor& gradient, const at::Tensor& q,
                                                        const at::Tensor& k, const at::Tensor& v,
                                                        const at::Tensor& bias, const ListedAttentionForward& forward,
                                                        const ListedAttentionOptions& options) {
  return listed_attention_backward_device(gradient, q, k, v, bias, forward, options,
                                          cuda_launch(q, launch_listed_attention_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("listed_attention_forward", dispatched<listed_attention_forward_cuda>);
  library.impl("listed_attention_backward", dispatched<listed_attention_backward_cuda>);
}

}  // namespace xformer::kernels
