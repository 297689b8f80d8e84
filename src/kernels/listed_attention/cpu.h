// The CPU's two passes of attention over listed keys (listed_attention.h), for float and double.
#pragma once

#include "kernels/listed_attention/listed_attention.h"

namespace xformer::kernels {

struct ListedAttentionForward {
  at::Tensor out;      // [b,h,n,e], memory [b,n,h,e]
  at::Tensor log_sum;  // [b,h,n]; infinity for rows without a key and for rows that are not valid
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
