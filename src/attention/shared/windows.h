// Softmax attention over sliding windows and blocks (kernels/window_attention) as the attentions call it.
#pragma once

#include <functional>

#include "attention/core.h"
#include "attention/shared/index_tables.h"
#include "kernels/window_attention/window_attention.h"

namespace xformer::attention {

using kernels::ExtraKeys;
using kernels::Windows;

// The option `window`, a list in all families that have it.
inline constexpr const char* kWindowHelp =
    "tokens that are seen on each side (w): one number for all layers, or one per layer (the list repeats)";
[[nodiscard]] int64_t layer_window(const std::vector<int64_t>& windows, int64_t layer);

// Elements that it keeps for the backward pass: queries, keys, values, output and one log-sum per row, of z = b h heads
// of n tokens and width d.
[[nodiscard]] constexpr double kept_of_windows(double z, double n, double d) { return z * n * (4 * d + 1); }

// softmax(q k^T / sqrt(d) + bias) v over each row's window and the extra keys. q, k, v [b,h,n,d] -> [b,h,n,d];
// key_valid [b,n] or undefined. Rows of padded queries are zero. `bias` is WindowAttentionOptions' one.
[[nodiscard]] at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const at::Tensor& key_valid, const Windows& windows,
                                          const kernels::Dropout& dropout, bool training, const ExtraKeys& extra = {},
                                          at::Tensor* log_sum = nullptr, const at::Tensor& bias = {});

// softmax of scores over the allowed keys only, with the log of each row's sum, by which partial softmaxes combine. A
// row without an allowed key has weights zero and a very low, finite log-sum.
struct PartialWeights {
  at::Tensor weights, log_sum;  // [.., q, k], [.., q, 1]
};
[[nodiscard]] PartialWeights partial_softmax(const at::Tensor& scores, const at::Tensor& allowed);

// What window_attention gave of keys that hold each row's own token.
struct NearRows {
  at::Tensor rows, log_sum;  // [b,h,n,d], [b,h,n,1]
};
// The same softmax over these and the other keys of the row's own residue (own_block with a dilation), by their shares
// of the sum. Forms the weights of all residues, residues.explicit_pairs() a head.
[[nodiscard]] at::Tensor with_residues(const NearRows& near, const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const at::Tensor& key_valid, const Windows& residues,
                                       const kernels::Dropout& dropout, bool training, const IndexTables& tables);

// The core of attentions that see one set of windows, a function of length and causality.
class WindowCore : public AttentionCore {
 public:
  WindowCore(const BuildContext& context, std::function<Windows(int64_t length, bool causal)> windows)
      : causal_(context.causal), windows_(std::move(windows)), dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry& carry) override;
  [[nodiscard]] Cost cost(const Shape& shape) const override;
  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& q) const override {
    return kernels::window_attention_runs_fused(q);
  }

 private:
  bool causal_;
  std::function<Windows(int64_t length, bool causal)> windows_;
  kernels::Dropout dropout_;
};

}  // namespace xformer::attention
