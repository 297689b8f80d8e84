// What the two passes of attention by alpha-entmax leave.
#pragma once

#include "kernels/entmax_attention/entmax_attention.h"

namespace xformer::kernels {

struct EntmaxAttentionForward {
  at::Tensor out;         // [b,h,n,e], memory [b,n,h,e]
  at::Tensor thresholds;  // [b,h,n], float where q is bf16; +infinity for rows without a key and for queries that are
                          // not valid
};
using EntmaxForwardPass = EntmaxAttentionForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                 const at::Tensor& alpha, const EntmaxAttentionOptions& options);

struct EntmaxAttentionGradients {
  at::Tensor q, k, v;  // memory [b,n,h,d]
  at::Tensor alpha;    // [h]; undefined where options.alpha says it
};
using EntmaxBackwardPass = EntmaxAttentionGradients(const at::Tensor& gradient, const at::Tensor& q,
                                                    const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
                                                    const EntmaxAttentionForward& forward,
                                                    const EntmaxAttentionOptions& options);

}  // namespace xformer::kernels
