#include "attention/shared/windows.h"

#include <ATen/Functions.h>

#include <cmath>

#include "kernels/batched_product/batched_product.h"
#include "kernels/fused.h"
#include "tensor/probe.h"

namespace xformer::attention {

int64_t layer_window(const std::vector<int64_t>& windows, int64_t layer) {
  return windows[static_cast<size_t>(layer) % windows.size()];
}

at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& key_valid,
                            const Windows& windows, const kernels::Dropout& dropout, bool training,
                            const ExtraKeys& extra, at::Tensor* log_sum, const at::Tensor& bias) {
  return kernels::window_attention(q, k, v, extra, {windows, key_valid, dropout.place(training), bias}, log_sum);
}

PartialWeights partial_softmax(const at::Tensor& scores, const at::Tensor& allowed) {
  const at::Tensor forbidden = allowed.logical_not();
  const at::Tensor filled = scores.masked_fill(forbidden, kernels::lowest_log_sum(scores.scalar_type()));
  return {at::softmax(filled, -1).masked_fill(forbidden, 0), at::logsumexp(filled, -1, /*keepdim=*/true)};
}

at::Tensor with_residues(const NearRows& near, const at::Tensor& q_in, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& key_valid, const Windows& residues, const kernels::Dropout& dropout,
                         bool training, const IndexTables& tables) {
  // What follows is no operator that computes in float by itself.
  const at::Tensor q = kernels::in_float(q_in), near_rows = kernels::in_float(near.rows);
  // The near keys have the row's own token: the residue leaves it out.
  at::Tensor allowed = tables.get("others", {residues.block}, q.device(), [&](const at::TensorOptions& numbers) {
    return at::eye(residues.block, numbers).eq(0);
  });
  if (const at::Tensor known = residues.allowed(key_valid, q); known.defined()) allowed = allowed.logical_and(known);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const at::Tensor scores = kernels::batched_product(
      residues.rows(q * scale), residues.rows(kernels::in_float(k)).transpose(-1, -2));  // [b,h,l,1,t,t]
  const PartialWeights far = partial_softmax(scores, allowed);
  probe("residue_weights", far.weights);
  const at::Tensor rows =
      residues.join(kernels::batched_product(dropout(far.weights, training), residues.rows(kernels::in_float(v))));
  // Two partial softmaxes become one by their shares exp(log_sum) of the whole.
  const at::Tensor share = at::sigmoid(near.log_sum - residues.join(far.log_sum));
  return rows + share * (near_rows - rows);
}

at::Tensor WindowCore::forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                               Carry& /*carry*/) {
  return window_attention(q, k, v, mask.key_valid, windows_(q.size(2), mask.causal), dropout_, is_training());
}

Cost WindowCore::cost(const Shape& shape) const {
  const Windows windows = windows_(shape.query_len, causal_);
  const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
  return {4 * z * d * windows.executed_pairs(), 4 * z * d * windows.pattern_pairs(),
          kept_of_windows(z, static_cast<double>(shape.query_len), d)};
}

}  // namespace xformer::attention
