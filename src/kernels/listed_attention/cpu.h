// The CPU's two passes of attention over listed keys (listed_attention.h), for float, double and bf16; a bias is float
// where the others are bf16.
#pragma once

#include "kernels/listed_attention/listed_attention.h"

namespace xformer::kernels {

struct ListedAttentionForward {
  at::Tensor out;  // [b,h,n,e], memory [b,n,h,e]
  // [b,h,n], float where q is bf16; infinity for rows without a key and for rows that are not valid
  at::Tensor log_sum;
};

[[nodiscard]] ListedAttentionForward listed_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                                  const at::Tensor& v, const at::Tensor& bias,
                                                                  const ListedAttentionOptions& options);

struct ListedAttentionGradients {
  at::Tensor q, k, v, bias;  // the last one undefined without a bias
};

[[nodiscard]] ListedAttentionGradients listed_attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                                     const at::Tensor& k, const at::Tensor& v,
                                                                     const at::Tensor& bias,
                                                                     const ListedAttentionForward& forward,
                                                                     const ListedAttentionOptions& options);

}  // namespace xformer::kernels
