#include "tensor/closed_keys.h"

#include <ATen/Functions.h>

namespace xformer {

at::Tensor closed_keys(const SequenceMask& mask, int64_t queries, int64_t keys, const at::Tensor& like) {
  at::Tensor closed;
  if (!mask.all_valid()) closed = mask.key_valid.logical_not().unsqueeze(1).unsqueeze(1);
  if (!mask.causal) return closed;
  const at::Tensor later = at::ones({queries, keys}, like.options().dtype(at::kBool)).triu(keys - queries + 1);
  return closed.defined() ? closed.logical_or(later) : later;
}

at::Tensor closed_softmax(const at::Tensor& scores, const at::Tensor& closed) {
  // The lowest finite number instead of -inf: a row without a key stays finite, and the second fill makes both its
  // values and its gradient zero.
  return at::softmax(scores.masked_fill(closed, lowest_score(scores.scalar_type())), -1).masked_fill(closed, 0);
}

}  // namespace xformer
