// Global tokens and a window (Longformer, ETC): the first g tokens see all and are seen by all; the others see the
// global tokens and the window around them, in one softmax.
#pragma once

#include <vector>

#include "attention/core.h"

namespace xformer::attention {

// The option `global_tokens`.
inline constexpr const char* kGlobalTokensHelp = "leading tokens that see all and are seen by all (g)";

// One after the other along the length [b,h,n,d], in memory as an output projection wants it: [b,n,h,d].
[[nodiscard]] at::Tensor join_rows(const std::vector<at::Tensor>& parts);

class GlobalWindow {
 public:
  // Row i >= g sees i + o delta for |o| <= window, delta the dilation of its head; causal: o <= 0, and global rows see
  // nothing later.
  GlobalWindow(int64_t global_tokens, int64_t window, const std::vector<int64_t>& dilation_of_heads,
               const BuildContext& context);

  struct Projected {
    at::Tensor q, k, v;  // [b,h,n,d]
  };
  // `rows` is what global rows use: its q need only hold the first global_rows(n) tokens. Rows of padded queries are
  // zero.
  [[nodiscard]] at::Tensor forward(const Projected& local, const Projected& rows, const SequenceMask& mask,
                                   bool training) const;
  [[nodiscard]] Cost cost(const Shape& shape) const;

  [[nodiscard]] int64_t global_rows(int64_t n) const { return std::min(global_tokens_, n); }

 private:
  struct Group {  // heads of one dilation, in rising order
    int64_t dilation;
    std::vector<int64_t> heads;
    kernels::Dropout dropout;
  };

  int64_t global_tokens_, window_;
  bool causal_;
  kernels::Dropout dropout_;  // of global rows
  std::vector<Group> groups_;
};

}  // namespace xformer::attention
