// Rows of a batch that somebody reads (linear.h), as programs over tiles of rows take them: flags of the rows, null
// where all are. A block makes nothing of a tile without such a row but zeros, and zeros of single rows where it
// stores a tile (tile.h).
#pragma once

#include "kernels/device/tile.h"

namespace xformer::kernels {

// Of the rows that a block works on at once.
enum class TileNeed { kNone, kSome, kAll };

// Of a tile's rows from `first` on, those behind `count` aside. The same in all threads of the block, without a
// barrier: each warp looks at all rows.
template <int kRows, class Thread>
[[nodiscard]] XFORMER_DEVICE TileNeed tile_need(const Thread& thread, const bool* needed, int64_t first,
                                                int64_t count) {
  if (needed == nullptr) return TileNeed::kAll;
  bool some = false, all = true;
  XFORMER_UNROLL
  for (int i = 0; i < kRows; i += kWarp) {
    const int64_t row = first + i + thread.index() % kWarp;
    const bool exists = row < count, own = exists && needed[row];
    some = some || own, all = all && (own || !exists);
  }
  if (thread.ballot(some) == 0) return TileNeed::kNone;
  return thread.ballot(!all) == 0 ? TileNeed::kAll : TileNeed::kSome;
}

// Zeros wherever the tile has elements.
template <class Thread, class Value>
XFORMER_DEVICE void clear_tile(const Thread& thread, const TilePlace& place, bool wide, Value* matrix) {
  constexpr int kRuns = kTileSide / kRun;
  const float zeros[kRun] = {};
  XFORMER_UNROLL_NEVER
  for (int i = 0; i < kTileSide * kRuns / kTileThreads; ++i) {
    const int at = i * kTileThreads + thread.index(), row = at / kRuns, column = at % kRuns * kRun;
    store_run(thread, zeros, place.count(row, column), wide, matrix + place.element(row, column));
  }
}

}  // namespace xformer::kernels
