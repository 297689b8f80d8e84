// The CPU's two passes of attention by alpha-entmax (entmax_attention.h), for float, double and bf16.
#pragma once

#include "kernels/entmax_attention/pass.h"

namespace xformer::kernels {

[[nodiscard]] EntmaxAttentionForward entmax_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                                  const at::Tensor& v, const at::Tensor& alpha,
                                                                  const EntmaxAttentionOptions& options);

[[nodiscard]] EntmaxAttentionGradients entmax_attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                                     const at::Tensor& k, const at::Tensor& v,
                                                                     const at::Tensor& alpha,
                                                                     const EntmaxAttentionForward& forward,
                                                                     const EntmaxAttentionOptions& options);

}  // namespace xformer::kernels
