// Tokens pinned in front (CLS, prefix) stand outside of a pattern of places: they see all and are seen by all; causal:
// they see those up to themselves.
#pragma once

#include <algorithm>

#include "attention/core.h"
#include "attention/shared/windows.h"

namespace xformer::attention {

class PinnedTokens {
 public:
  explicit PinnedTokens(const BuildContext& context)
      : pinned_(context.pinned_tokens), causal_(context.causal), dropout_(context.make_dropout()) {}

  // How many of n tokens are pinned.
  [[nodiscard]] int64_t of(int64_t n) const { return std::min(pinned_, n); }

  // What `others` sees of q, k and v [b,h,n,d]: the rows behind the pinned ones, which of them are valid (undefined:
  // all), and the pinned keys.
  struct Rest {
    at::Tensor q, k, v, valid;
    ExtraKeys pinned;
  };
  // The pinned rows, and behind them those that `others` gives; it is not called where there are none.
  [[nodiscard]] at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const SequenceMask& mask, bool training,
                                   const std::function<at::Tensor(const Rest& rest)>& others) const;

  // Pairs of one head in the pinned rows of n tokens: as they are run, and those that are allowed.
  [[nodiscard]] double executed_pairs(int64_t n) const;
  [[nodiscard]] double pattern_pairs(int64_t n) const;

 private:
  int64_t pinned_;
  bool causal_;
  kernels::Dropout dropout_;
};

}  // namespace xformer::attention
