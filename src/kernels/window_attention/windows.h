// Which keys a row sees in attention over sliding windows and blocks, and how rows and keys are cut into blocks.
//
// Axis letters: b batch, h heads, n length, d head width, r residues modulo the dilation, t blocks of a residue, c rows
// of a block, w columns: the keys that a block reads (some before it, its own, some behind it), g extra keys.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// Any n >= 1 works: what does not fill a block is padding inside, and a sequence that is hardly longer than one block's
// columns becomes one block.
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
  // Row i sees its block of `block` consecutive tokens and `beside` <= block more on either side, as far as they exist.
  static Windows segments(int64_t n, int64_t block, int64_t beside);
  // Row i sees its block and the one on either side, as far as they exist (the middle of BigBird).
  static Windows neighbour_blocks(int64_t n, int64_t block, bool causal);

  [[nodiscard]] int64_t columns_per_block() const { return before + block + after; }  // w
  // How many of the first `end` tokens are of one residue.
  [[nodiscard]] int64_t tokens(int64_t residue, int64_t end) const {
    return end > residue ? (end - residue + dilation - 1) / dilation : 0;
  }

  [[nodiscard]] at::Tensor rows(const at::Tensor& x) const;     // [b,h,n,d] -> [b,h,r,t,c,d], zeros in the padding
  [[nodiscard]] at::Tensor columns(const at::Tensor& x) const;  // [b,h,n,d] -> [b,h,r,t,w,d]
  [[nodiscard]] at::Tensor join(const at::Tensor& x) const;     // [b,h,r,t,c,d] -> [b,h,n,d]
  // key_valid [b,n] or undefined -> bool that broadcasts to [b,1,r,t,c,w], on the device of `like`; undefined when
  // every row of a block sees all its columns.
  [[nodiscard]] at::Tensor allowed(const at::Tensor& key_valid, const at::Tensor& like) const;

  // Pairs of one head: those of the pattern; those that the CPU's kernel multiplies, blocks cut off at both ends of the
  // sequence; those of explicit weights, with their padding: r t c w.
  [[nodiscard]] double pattern_pairs() const;
  [[nodiscard]] double executed_pairs() const;
  [[nodiscard]] double explicit_pairs() const;
};

}  // namespace xformer::kernels
