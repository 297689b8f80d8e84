// The mean over a sequence's tokens that a classifier reads (models/readout.h):
//   mean = sum of x over the counted tokens from `pinned` on / their number, or, padded, the number of all these places
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

struct TokenMeanOptions {
  at::Tensor valid;     // [b,n] bool: the tokens that count; undefined: all do
  int64_t pinned = 0;   // tokens in front that never count
  bool padded = false;  // divided by n - pinned, whatever counts
};

// [b,n,d] -> [b,d]; a sequence of which nothing counts is zero, with a zero gradient.
[[nodiscard]] at::Tensor token_mean(const at::Tensor& x, const TokenMeanOptions& options);

// The definition.
[[nodiscard]] at::Tensor token_mean_reference(const at::Tensor& x, const TokenMeanOptions& options);

}  // namespace xformer::kernels
