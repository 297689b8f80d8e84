// Softmax attention over sliding windows and blocks in products of small dense blocks: time and memory n w, nothing of
// size [n, n]. Algorithms 9.1 (blocked window), 9.2 (dilation) and 9.3 (keys that all rows see) of attention-core.
//
// Axis letters: b batch, h heads, n length, d head width, r residues modulo the dilation, t blocks of a residue, c rows
// of a block, w columns: the keys that a block reads (some before it, its own, some behind it), g extra keys.
#pragma once

#include <torch/types.h>

#include "attention/core.h"

namespace xformer::attention {

// The option `window`, a list in all families that have it.
inline constexpr const char* kWindowHelp =
    "tokens that are seen on each side (w): one number for all layers, or one per layer (the list repeats)";
[[nodiscard]] int64_t layer_window(const std::vector<int64_t>& windows, int64_t layer);

// Which keys a row sees, and how rows and keys are cut into blocks. Any n >= 1 works: what does not fill a block is
// padded inside, and a sequence that is hardly longer than one block's columns becomes one block.
struct Windows {
  int64_t length = 1;             // n
  int64_t dilation = 1;           // r
  int64_t block = 1, blocks = 1;  // c and t: r t c >= n
  int64_t before = 0, after = 0;  // columns taken from the block before and the block behind, at most c each
  int64_t back = 0, ahead = 0;    // a row sees offsets -back to ahead within its columns, in steps of the dilation

  // Row i sees the keys i + o r for -back <= o <= ahead: |i - j| <= w is sliding(n, w, w), causal sliding(n, w, 0).
  static Windows sliding(int64_t n, int64_t back, int64_t ahead, int64_t dilation = 1);
  // Row i sees its block of `block` consecutive tokens; with a dilation, of every dilation-th token.
  static Windows own_block(int64_t n, int64_t block, bool causal, int64_t dilation = 1);
  // Row i sees its block and the one on either side, as far as they exist (the middle of BigBird).
  static Windows neighbour_blocks(int64_t n, int64_t block, bool causal);

  [[nodiscard]] int64_t columns_per_block() const { return before + block + after; }  // w

  [[nodiscard]] at::Tensor rows(const at::Tensor& x) const;     // [b,h,n,d] -> [b,h,r,t,c,d], zeros in the padding
  [[nodiscard]] at::Tensor columns(const at::Tensor& x) const;  // [b,h,n,d] -> [b,h,r,t,w,d]
  [[nodiscard]] at::Tensor join(const at::Tensor& x) const;     // [b,h,r,t,c,d] -> [b,h,n,d]
  // key_valid [b,n] or undefined -> bool that broadcasts to [b,1,r,t,c,w], on the device of `like`; undefined when
  // every row of a block sees all its columns.
  [[nodiscard]] at::Tensor allowed(const at::Tensor& key_valid, const at::Tensor& like) const;

  // Pairs of one head: those computed, r t c w, and those that the pattern holds.
  [[nodiscard]] double executed_pairs() const;
  [[nodiscard]] double pattern_pairs() const;
};

// Keys on top of the columns, in the same softmax. They must not be among a row's columns: each key counts once.
struct ExtraKeys {
  at::Tensor k, v;     // [b,h,g,d], the same for all rows, or [b,h,r,t,g,d], for each block; undefined: none
  at::Tensor allowed;  // bool, broadcasts to [b,h,r,t,c,g]; undefined: every row sees all of them
};

// softmax(q k^T / sqrt(d)) v over each row's window and the extra keys. q, k, v [b,h,n,d] -> [b,h,n,d]; key_valid [b,n]
// or undefined. A row without an allowed key gives zeros and zero gradient. Reports "weights" [b,h,r,t,c,g+w], extra
// keys first. FLOPs: 4 b h d r t c (w + g).
// With log_sum it also gives the log of each row's sum of exp(scores) [b,h,n,1], by which several partial softmaxes
// combine; a row without a key has a very low, finite one.
[[nodiscard]] at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const at::Tensor& key_valid, const Windows& windows,
                                          const kernels::Dropout& dropout, bool training, const ExtraKeys& extra = {},
                                          at::Tensor* log_sum = nullptr);

}  // namespace xformer::attention
