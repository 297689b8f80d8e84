// Which keys match each row best ("Explicit Sparse Transformer", Zhao, Lin, Zhang, Ren, Su, Sun, 2019, section 2.2):
//   A(i) = {j : q_i k_j >= the k_i-th largest q_i k_j of row i}
// of the keys that row i may see, as lists that listed attention reads. Scores are in memory for some rows at a time.
// One with the k_i-th largest score is in the list whoever else has it; a NaN counts as the largest number.
#pragma once

#include <torch/types.h>

#include "tensor/sequence_mask.h"

namespace xformer::kernels {

struct TopKeysOptions {
  SequenceMask mask;       // of the keys
  at::Tensor query_valid;  // [b,n] bool: lists of other rows are empty; undefined: all are valid
  int64_t top_k = 1;
  double top_fraction = 0;  // of the keys that a row may see, which it keeps where that is more

  // k_i of a row that may see so many keys.
  [[nodiscard]] int64_t kept(int64_t keys) const;
};

// q [b,h,n,d], k [b,h,m,d] -> int64 [b,h,n,L]: places of keys, ascending, then -1. L is what any row might keep, or
// more where scores are alike. Without a gradient. FLOPs on the CPU: 2 d top_keys_pairs() for each head.
[[nodiscard]] at::Tensor top_keys(const at::Tensor& q, const at::Tensor& k, const TopKeysOptions& options);

// Whether a kernel finds them, so that no scores [b,h,n,m] lie in memory: on a CPU, in float and double.
[[nodiscard]] bool top_keys_runs_fused(const at::Tensor& q, const at::Tensor& k);

// Pairs of a row and a key that the kernel multiplies for each head when all are valid: n m, or, causal, whole blocks
// of keys up to the diagonal.
[[nodiscard]] int64_t top_keys_pairs(int64_t n, int64_t m, bool causal);

// The k_i-th largest of the scores [b,h,n,m] of each row [b,h,n,1], those of closed keys being the lowest number; that
// where a row has fewer. `closed`: which these are, undefined: none.
[[nodiscard]] at::Tensor top_threshold(const at::Tensor& scores, const at::Tensor& closed,
                                       const TopKeysOptions& options);

// The definition, with [b,h,n,m] scores.
[[nodiscard]] at::Tensor top_keys_reference(const at::Tensor& q, const at::Tensor& k, const TopKeysOptions& options);

}  // namespace xformer::kernels
