// Additive attention from plain tensor operations: the meaning of the operator and of its gradient.
#include <ATen/Functions.h>

#include "kernels/additive_attention/additive_attention.h"
#include "kernels/row_tiles.h"
#include "tensor/probe.h"

namespace xformer::kernels {

at::Tensor additive_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const at::Tensor& w, const AdditiveAttentionOptions& options) {
  const int64_t tile = tile_rows(q.size(0) * k.size(1) * k.size(2) * k.size(3));
  const at::Tensor scores = in_row_tiles({q}, {k, w}, tile, [](const Tensors& rows, const Tensors& whole) {
    const at::Tensor angles = at::tanh(rows[0].unsqueeze(3) + whole[0].unsqueeze(2));  // [b,h,r,m,d]
    return at::matmul(angles, whole[1].unsqueeze(1).unsqueeze(-1)).squeeze(-1);        // [b,h,r,m]
  });
  const at::Tensor weights = masked_softmax(scores, options.mask);
  probe("weights", weights);
  const at::Tensor out = at::matmul(options.dropout(weights), v);
  if (!options.query_valid.defined()) return out;
  return out.masked_fill(options.query_valid.logical_not().unsqueeze(1).unsqueeze(-1), 0);
}

}  // namespace xformer::kernels
