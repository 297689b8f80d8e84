// Attention over windows on CUDA tensors (part of the plugin).
#include "kernels/window_attention/cuda.h"

#include "kernels/device/cuda_launch.h"
#include "kernels/operator.h"
#include "kernels/window_attention/device.h"

namespace xformer::kernels {

namespace {

WindowAttentionForward window_attention_forward_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ExtraKeys& extra, const RelativeKeys& relative,
                                                     const WindowAttentionOptions& options) {
  return window_attention_forward_device(q, k, v, extra, relative, options,
                                         cuda_launch(q, launch_window_attention_forward));
}

WindowAttentionGradients window_attention_backward_cuda(const at::Tensor& out_gradient,
                                                        const at::Tensor& log_sum_gradient, const at::Tensor& q,
                                                        const at::Tensor& k, const at::Tensor& v,
                                                        const ExtraKeys& extra, const RelativeKeys& relative,
                                                        const WindowAttentionForward& forward,
                                                        const WindowAttentionOptions& options) {
  return window_attention_backward_device(out_gradient, log_sum_gradient, q, k, v, extra, relative, forward, options,
                                          cuda_launch(q, launch_window_attention_backward));
}

}  // namespace

TORCH_LIBRARY_IMPL(xformer, CUDA, library) {
  library.impl("window_attention_forward", dispatched<window_attention_forward_cuda>);
  library.impl("window_attention_backward", dispatched<window_attention_backward_cuda>);
}

}  // namespace xformer::kernels
