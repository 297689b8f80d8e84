// Attention by alpha-entmax on CUDA tensors (part of the plugin).
#include "kernels/entmax_attention/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/entmax_attention/device.h"
#include "kernels/operator.h"

namespace xformer::kernels {

namespace {

EntmaxAttentionForward entmax_attention_forward_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const at::Tensor& alpha, const EntmaxAttentionOptions& options) {
  return entmax_forward_device(q, k, v, alpha, options, cuda_launch(q, launch_entmax_attention_forward));
}

EntmaxAttentionGradients entmax_attention_backward_cuda(const at::Tensor& gradient, const at::Tensor& q,
                                                        const at::Tensor& k, const at::Tensor& v,
                                                        const at::Tensor& alpha, const EntmaxAttentionForward& forward,
                                                        const EntmaxAttentionOptions& options) {
  return entmax_backward_device(gradient, q, k, v, alpha, forward, options,
                                cuda_launch(q, launch_entmax_attention_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("entmax_attention_forward", dispatched<entmax_attention_forward_cuda>);
  library.impl("entmax_attention_backward", dispatched<entmax_attention_backward_cuda>);
}

}  // namespace xformer::kernels
