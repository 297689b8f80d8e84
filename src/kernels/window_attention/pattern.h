// Which rows and keys attention over windows on a device has together, by tiles of 64. No LibTorch here.
#pragma once

#include "kernels/device/tile.h"

namespace xformer::kernels {

// Of a residue's tokens.
struct Span {
  int from, to;
};

// Rows that a block of a program has, at most 64.
struct WindowRows : Span {
  int residue, block;  // the second: the block of the windows that they are all in, where that matters
};

inline constexpr int64_t kWindowMost = int64_t{1} << 28;  // tokens and extra keys, with which nothing leaves an int

// Windows (windows.h) as device programs know them.
struct WindowPattern {
  int n = 0, dilation = 1, block = 1, blocks = 1, before = 0, after = 0, back = 0, ahead = 0;
  bool by_block = false;  // extra keys are of each block, and rows of several blocks in no tile

  // How many of the first `end` tokens are of one residue.
  [[nodiscard]] constexpr int tokens(int residue, int end) const {
    return end > residue ? (end - residue + dilation - 1) / dilation : 0;
  }
  // Which token of all the i-th of a residue is; -1 from its `end`-th on.
  [[nodiscard]] constexpr int token(int residue, int i, int end) const { return i < end ? residue + i * dilation : -1; }
  [[nodiscard]] constexpr int width() const { return before + block + after; }
  // All rows of a head, with the padding inside.
  [[nodiscard]] constexpr int64_t rows() const { return int64_t{dilation} * blocks * block; }

  // Rows are cut into tiles residue by residue, or block by block.
  [[nodiscard]] constexpr int tiles_of_part() const {
    return static_cast<int>(tiles_of(by_block ? block : tokens(0, n)));
  }
  [[nodiscard]] constexpr int row_tiles() const { return (by_block ? blocks : dilation) * tiles_of_part(); }
  [[nodiscard]] constexpr WindowRows row_tile(int tile) const {
    const int part = tile / tiles_of_part(), first = tile % tiles_of_part() * kTileSide;
    if (!by_block) return {{first, least(first + kTileSide, tokens(part, n))}, part, 0};
    const int begin = part * block + first;
    return {{begin, least(least(begin + kTileSide, (part + 1) * block), n)}, 0, part};
  }

  // The keys that a row sees, among `end` tokens of its residue.
  [[nodiscard]] constexpr Span keys(int row, int end) const {
    const int begin = block_begin(row);
    return {most(0, most(begin - before, row - back)), least(end, least(begin + block + after, row + ahead + 1))};
  }
  // Rows among which are all that see one of the keys `first` to first + 63.
  [[nodiscard]] constexpr Span seeing(int first, int end) const {
    const int last = first + kTileSide - 1;
    return {most(first - ahead, block_begin(most(0, first - after))),
            least(end, least(last + back + 1, block_begin(last + before) + block))};
  }
  // The first row of a row's block.
  [[nodiscard]] constexpr int block_begin(int row) const { return row / block * block; }

 private:
  [[nodiscard]] static constexpr int least(int a, int b) { return a < b ? a : b; }
  [[nodiscard]] static constexpr int most(int a, int b) { return a > b ? a : b; }
};

}  // namespace xformer::kernels
