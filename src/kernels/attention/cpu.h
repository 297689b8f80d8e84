// The CPU's two passes of attention (attention.h), for float, double and bf16.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/weight_rows.h"

namespace xformer::kernels {

struct AttentionForward {
  at::Tensor out;  // [b,h,n,e], memory [b,n,h,e]
  at::Tensor
      log_sum;  // [b,h,n], float where q is bf16; +infinity for rows without a key and for queries that are not valid
  at::Tensor kept;  // of a device: which weights dropout keeps, as its backward pass reads it; else undefined
};

[[nodiscard]] AttentionForward attention_forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const AttentionOptions& options);

struct AttentionGradients {
  at::Tensor q, k, v;  // memory [b,n,h,d]
};

[[nodiscard]] AttentionGradients attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                        const at::Tensor& k, const at::Tensor& v,
                                                        const AttentionForward& forward,
                                                        const AttentionOptions& options);

}  // namespace xformer::kernels
