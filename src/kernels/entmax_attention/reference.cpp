// Attention by alpha-entmax from its parts: the meaning of the operator.
#include <ATen/Functions.h>

#include "kernels/batched_product/batched_product.h"
#include "kernels/entmax/entmax.h"
#include "kernels/entmax_attention/entmax_attention.h"
#include "tensor/closed_keys.h"
#include "tensor/probe.h"

namespace xformer::kernels {

namespace {

// scores [b,h,n,m], which are changed -> the weights.
at::Tensor entmax_weights(const at::Tensor& scores, const at::Tensor& given_alpha,
                          const EntmaxAttentionOptions& options) {
  const SequenceMask& mask = options.rows.mask;
  if (options.alpha == 1) return masked_softmax(scores, mask);
  const double lowest = lowest_score(scores.scalar_type());
  if (const at::Tensor closed = closed_keys(mask, scores.size(2), scores.size(3), scores); closed.defined()) {
    // A weight of zero passes no gradient to its score.
    const at::NoGradGuard no_grad;
    scores.masked_fill_(closed, lowest);
  }
  const bool closed_form = options.alpha == 1.5 || options.alpha == 2;
  const at::Tensor alpha =
      options.alpha == 0 ? given_alpha : at::full({closed_form ? 1 : scores.size(1)}, options.alpha, scores.options());
  const at::Tensor weights = entmax(scores, alpha, {closed_form ? options.alpha : 0.0, lowest / 2});
  probe("alpha", alpha);
  probe("support", weights.gt(0).sum(-1));
  return weights;
}

}  // namespace

at::Tensor entmax_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& alpha, const EntmaxAttentionOptions& options) {
  const at::Tensor scores = batched_product(q * options.rows.scale, k.transpose(-1, -2));  // [b,h,n,m]
  const at::Tensor weights = entmax_weights(scores, alpha, options);
  probe("weights", weights);
  const at::Tensor out = batched_product(options.rows.dropout(weights), v);
  const at::Tensor& valid = options.rows.query_valid;
  return valid.defined() ? at::where(valid.unsqueeze(1).unsqueeze(-1), out, 0) : out;
}

}  // namespace xformer::kernels
