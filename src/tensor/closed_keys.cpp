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

}  // namespace xformer
