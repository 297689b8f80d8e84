// Which keys may be attended to: validity of tokens and causality, never a dense [n, n] matrix.
#pragma once

#include <torch/types.h>

namespace xformer {

// Pooled sequences: `pinned` leading tokens (CLS, prefix) stay groups of their own, the others form groups
// of `scale` consecutive tokens, the last one ragged.
struct SequenceMask {
  at::Tensor key_valid;  // [b, n] bool, or undefined when every token is valid
  bool causal = false;
  bool cross = false;        // queries are another sequence, of which key_valid says nothing
  bool padding_read = true;  // somebody reads what is made of tokens that are not valid

  [[nodiscard]] bool all_valid() const { return !key_valid.defined(); }
  // key_valid as factors for [b, h, n, d] tensors: [b, 1, n, 1] of the given type. Only when !all_valid().
  [[nodiscard]] at::Tensor as_factor(at::ScalarType type) const;
  // [b, n] bool: the tokens of which anything has to be made; undefined: all.
  [[nodiscard]] at::Tensor needed() const { return padding_read || cross ? at::Tensor() : key_valid; }
  // [b, n] bool: which of n queries are valid; undefined where the mask does not say.
  [[nodiscard]] at::Tensor query_valid(int64_t n) const;
  // x [b, h, n, d] with zero in the rows of tokens that are not valid, whatever stood there.
  [[nodiscard]] at::Tensor zero_padding(const at::Tensor& x) const;
  // The mask of pooled groups: a group is valid when any of its tokens is (attention-core 3.17).
  [[nodiscard]] SequenceMask pooled(int64_t scale, int64_t pinned = 0) const;
};

// Number of groups that n tokens form: pinned + ceil((n - pinned) / scale).
[[nodiscard]] int64_t pooled_len(int64_t n, int64_t scale, int64_t pinned = 0);

// Masked mean over groups: [b, h, n, d] -> [b, h, pooled_len, d]; a group without a valid token gives 0.
[[nodiscard]] at::Tensor pool_tokens(const at::Tensor& x, const SequenceMask& mask, int64_t scale, int64_t pinned = 0);
// Repeats each group's row `scale` times and cuts to n tokens: the inverse walk of pool_tokens.
[[nodiscard]] at::Tensor repeat_tokens(const at::Tensor& x, int64_t n, int64_t scale, int64_t pinned = 0);

// softmax over the last dimension of scores [b, h, q, k] over valid (and, if causal, not later) keys only.
// A row without any allowed key gives zeros and zero gradient, never NaN (attention-core 0.3).
[[nodiscard]] at::Tensor masked_softmax(const at::Tensor& scores, const SequenceMask& mask);

}  // namespace xformer
