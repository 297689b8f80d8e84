// Which keys rows must not read, as one tensor: for weights that are no plain softmax (tensor/sequence_mask.h).
#pragma once

#include "tensor/sequence_mask.h"

namespace xformer {

// bool that broadcasts to [b,h,queries,keys], on the device of `like`; undefined where every row reads every key.
[[nodiscard]] at::Tensor closed_keys(const SequenceMask& mask, int64_t queries, int64_t keys, const at::Tensor& like);

// The score of a key that must not be read: the lowest finite number that masked_softmax fills with too.
[[nodiscard]] constexpr double lowest_score(at::ScalarType type) { return type == at::kDouble ? -1e300 : -1e30; }

// softmax over the last dimension of scores over the keys that are not closed (broadcasts to scores), whose weights are
// exactly zero. A row without a key gives zeros and zero gradient, never NaN (attention-core 0.3).
[[nodiscard]] at::Tensor closed_softmax(const at::Tensor& scores, const at::Tensor& closed);

// Pairs of one head that rows read: all, or if causal each row's own key and the earlier ones.
[[nodiscard]] constexpr double read_pairs(int64_t queries, int64_t keys, bool causal) {
  return static_cast<double>(causal ? queries * keys - queries * (queries - 1) / 2 : queries * keys);
}

}  // namespace xformer
