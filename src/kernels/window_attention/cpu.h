// The CPU's two passes of attention over windows (window_attention.h), for float, double and bf16.
#pragma once

#include "kernels/window_attention/window_attention.h"

namespace xformer::kernels {

struct WindowAttentionForward {
  at::Tensor out;      // [b,h,n,e], memory [b,n,h,e]
  at::Tensor log_sum;  // [b,h,n,1], float beside bf16
};

[[nodiscard]] WindowAttentionForward window_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                                  const at::Tensor& v, const ExtraKeys& extra,
                                                                  const RelativeKeys& relative,
                                                                  const WindowAttentionOptions& options);

struct WindowAttentionGradients {
  at::Tensor q, k, v;           // memory [b,n,h,d]
  at::Tensor extra_k, extra_v;  // as the extra keys; undefined without
  at::Tensor vectors, bias;     // as the relative keys, float beside bf16; undefined without
};

// Gradients of the outputs; either may be undefined.
[[nodiscard]] WindowAttentionGradients window_attention_backward_cpu(
    const at::Tensor& out_gradient, const at::Tensor& log_sum_gradient, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, const ExtraKeys& extra, const RelativeKeys& relative, const WindowAttentionForward& forward,
    const WindowAttentionOptions& options);

}  // namespace xformer::kernels
