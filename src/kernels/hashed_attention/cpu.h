// The CPU's two passes of hashed_attention.h, for float, double and bf16.
#pragma once

#include "kernels/hashed_attention/hashed_attention.h"

namespace xformer::kernels {

struct HashedAttentionForward {
  at::Tensor out;    // [b,h,n,e], memory [b,n,h,e]
  at::Tensor order;  // [b,h,r,slots] int32: the token in each slot; undefined without buckets
  at::Tensor shift,
      sum;  // [b,h,n], float where q is bf16: largest logit over all rounds, and the sum of exp(logit - shift)
};

[[nodiscard]] HashedAttentionForward hashed_attention_forward_cpu(const at::Tensor& q, const at::Tensor& v,
                                                                  const at::Tensor& buckets,
                                                                  const HashedAttentionOptions& options);

struct HashedAttentionGradients {
  at::Tensor q, v;  // memory [b,n,h,d]
};

[[nodiscard]] HashedAttentionGradients hashed_attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                                     const at::Tensor& v,
                                                                     const HashedAttentionForward& forward,
                                                                     const HashedAttentionOptions& options);

[[nodiscard]] at::Tensor hash_buckets_cpu(const at::Tensor& q, const at::Tensor& directions,
                                          const std::vector<int64_t>& factors, const HashedAttentionOptions& options);

}  // namespace xformer::kernels
