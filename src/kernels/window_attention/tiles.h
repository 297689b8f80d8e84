// How attention over windows on the CPU cuts the rows of a block into tiles, and which columns a tile reads.
#pragma once

#include <algorithm>

#include "kernels/window_attention/windows.h"

namespace xformer::kernels {

// Two tiles of floats with their draws fit into the second-level cache, unless columns are so many that less than
// kFewestRows would remain.
constexpr int64_t kWindowTile = 64 * 256, kFewestRows = 32;

// The offsets that a head of its own distances sees: -back to ahead.
struct Reach {
  int64_t back, ahead;
};

struct Cut {
  int64_t first, rows;      // of the residue's tokens
  int64_t column, columns;  // the same of keys
};

// visit(cut) for the tiles of a block, of a residue of `end` tokens. Without distances all of them read the block's
// columns; with these each reads what its own rows reach, and is about as high as that is wide, so that what is
// multiplied in vain is about what is not.
template <class Visit>
void for_cuts(const Windows& windows, int64_t end, int64_t block, int64_t extra, const Reach* reach,
              const Visit& visit) {
  const int64_t begin = block * windows.block, last = std::min(end, begin + windows.block);
  const int64_t from = std::max<int64_t>(0, begin - windows.before);
  const int64_t to = std::min(end, begin + windows.block + windows.after);
  int64_t height = kWindowTile / (extra + windows.columns_per_block());
  if (reach != nullptr) {
    const int64_t seen = reach->back + 1 + reach->ahead;
    height = std::min(seen, kWindowTile / (extra + 2 * seen)) / 16 * 16;
  }
  height = std::max(kFewestRows, height);
  for (int64_t first = begin; first < last; first += height) {
    const int64_t rows = std::min(height, last - first);
    const int64_t column = reach == nullptr ? from : std::max(from, first - reach->back);
    const int64_t columns = (reach == nullptr ? to : std::min(to, first + rows + reach->ahead)) - column;
    visit(Cut{first, rows, column, columns});
  }
}

// The offsets between a tile's rows and its columns: `count` of them from `first` on.
struct Offsets {
  int64_t first, count;
};
[[nodiscard]] inline Offsets offsets_of(const Cut& cut, const Reach& reach) {
  const int64_t first = std::max(-reach.back, cut.column - (cut.first + cut.rows - 1));
  const int64_t last = std::min(reach.ahead, cut.column + cut.columns - 1 - cut.first);
  return {first, last - first + 1};
}

}  // namespace xformer::kernels
