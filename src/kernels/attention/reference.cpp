// Attention from plain tensor operations: the meaning of the operator and of its gradient.
#include <ATen/Functions.h>

#include "kernels/attention/attention.h"
#include "tensor/probe.h"

namespace xformer::kernels {

at::Tensor attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOptions& options) {
  const at::Tensor weights =
      masked_softmax(at::matmul(q * options.scale, k.transpose(-1, -2)), options.mask);  // [b,h,n,m]
  probe("weights", weights);
  const at::Tensor out = at::matmul(options.dropout(weights), v);
  if (!options.query_valid.defined()) return out;
  return out.masked_fill(options.query_valid.logical_not().unsqueeze(1).unsqueeze(-1), 0);
}

}  // namespace xformer::kernels
