// The norm of rows (residual_norm.h) before what takes them as tiles of an operand, linear maps say: normed rows are in
// the block's own memory alone, and two numbers of each row are kept, of which the backward pass makes them again.
#pragma once

#include "kernels/device/operand.h"
#include "kernels/residual_norm/row_norm.h"

namespace xformer::kernels {

inline constexpr int64_t kWidestNormTile = 2 * kTileSide;  // of rows whose mean is yet to be found

struct TileNorm {
  const float *weight = nullptr, *bias = nullptr;  // [width]; null: rows are taken as they are
  float *mean = nullptr, *rstd = nullptr;          // [rows], written forwards and read backwards
  float epsilon = 0;

  [[nodiscard]] XFORMER_DEVICE bool defined() const { return weight != nullptr; }
};

// Rows from `first` on of a matrix of `count` rows of floats, normed, into so many rows of a tile: the columns from
// `column` on, a multiple of the tile's. Rows that are not `needed` (null: all are) become zeros. Forwards mean and
// rstd are found, and written where `keeps`; `kAgain`: they are there already.
template <bool kAgain, int kRows, class Thread, class Tile>
XFORMER_DEVICE void put_normed(const Thread& thread, const TileNorm& norm, const float* matrix, const RowPlaces& places,
                               int64_t column, int64_t first, int64_t count, const bool* needed, bool keeps,
                               const Tile& tile) {
  constexpr int kRuns = kTileSide / kRun, kAtOnce = kTileThreads / kRuns;  // rows
  XFORMER_UNROLL_NEVER
  for (int row = thread.index() / kRuns; row < kRows; row += kAtOnce) {
    const int own = thread.anew(thread.index()) % kRuns * kRun;  // there are no registers for what is made of it
    const int64_t place = first + row;
    const bool exists = place < count, lives = exists && (needed == nullptr || needed[place]);
    const auto count_at = [&](int64_t from) { return lives ? run_length(places.row - from - own) : 0; };
    const auto load = [&](int64_t from, float* values) {
      load_run(thread, matrix + place * places.row + from + own, count_at(from), places.wide, values);
    };
    float values[kRun];
    RowStatistics<float> of{0, 0};
    if constexpr (kAgain) {
      load(column, values);
      if (lives) of = {norm.mean[place], norm.rstd[place]};
    } else {
      float whole[2][kRun];
      load(0, whole[0]), load(kTileSide, whole[1]);
      of = row_statistics(thread, whole, kRuns, static_cast<float>(places.row), norm.epsilon,
                          [&](int pack) { return count_at(pack * kTileSide); });
      if (keeps && exists && own == 0) norm.mean[place] = of.mean, norm.rstd[place] = lives ? of.rstd : 0.0F;
      XFORMER_UNROLL
      for (int k = 0; k < kRun; ++k) values[k] = column == 0 ? whole[0][k] : whole[1][k];
    }
    norm_run(thread, of, norm.weight + column + own, norm.bias + column + own, count_at(column), places.wide, values);
    tile.put(thread, values, row, own);
  }
}

}  // namespace xformer::kernels
