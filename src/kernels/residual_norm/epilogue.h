// Residual and norm (residual_norm.h) of a branch whose products a block has just made: it holds 64 whole rows of it,
// so sum and normed rows go to memory at once, and the branch never does.
#pragma once

#include "kernels/device/tile.h"
#include "kernels/residual_norm/row_norm.h"

namespace xformer::kernels {

inline constexpr int64_t kWidestEpilogue = 2 * kTileSide;  // of rows

struct ResidualEpilogue {
  const float* x = nullptr;                                   // [rows, width]; null: the branch itself is stored
  float* sum = nullptr;                                       // likewise
  float *normed = nullptr, *mean = nullptr, *rstd = nullptr;  // as the sum and [rows]; null without a norm
  const float *weight = nullptr, *bias = nullptr;             // [width]
  float epsilon = 0;
  DeviceDrop drop;
};

// A run of a row that nobody needs: zeros where it has a norm, else x, to which nothing is added.
template <class Thread>
XFORMER_DEVICE void leave_run(const Thread& thread, const ResidualEpilogue& a, const TilePlace& place, int row,
                              int column, bool wide) {
  const int count = place.count(row, column);
  const int64_t element = place.element(row, column);
  float values[kRun];
  load_run(thread, a.x + element, a.normed == nullptr ? count : 0, wide, values);
  store_run(thread, values, count, wide, a.sum + element);
  if (a.normed == nullptr) return;
  store_run(thread, values, count, wide, a.normed + element);
  if (column == 0 && count > 0) a.mean[place.row + row] = a.rstd[place.row + row] = 0;
}

// A tile of such rows, of all columns.
template <class Thread>
XFORMER_DEVICE void leave_tile(const Thread& thread, const ResidualEpilogue& a, const TilePlace& place, bool wide) {
  const int runs = static_cast<int>((place.width + kRun - 1) / kRun);
  XFORMER_UNROLL_NEVER
  for (int at = thread.index(); at < kTileSide * runs; at += kTileThreads)
    leave_run(thread, a, place, at / runs, at % runs * kRun, wide);
}

// From the block's products, 16 rows of each warp by kPacks tiles of columns, and a bias of the columns (null: none).
// `needed`: of the matrix's rows, null where all are. place: of the first tile. `rooms`: kPacks tiles that nobody reads
// any more after the barrier in here.
template <int kPacks, class Thread>
XFORMER_DEVICE void store_residual(const Thread& thread, const float (*products)[4], const float* bias,
                                   const ResidualEpilogue& a, const bool* needed, const TilePlace& place, bool wide,
                                   const SharedRows (&rooms)[kPacks]) {
  constexpr int kRuns = kTileSide / kRun, kTiles = kTileSide / kTileColumns;
  thread.sync();
  XFORMER_UNROLL
  for (int pack = 0; pack < kPacks; ++pack)
    put_fragment(thread, products + pack * kTiles, thread.index() / kWarp * kTileRows, rooms[pack]);
  thread.sync();
  const DeviceDraws draws(a.drop);
  const auto width = static_cast<float>(place.width);
  for (int i = 0; i < kTileSide * kRuns / kTileThreads; ++i) {  // kRuns neighbouring lanes have a row
    const int at = i * kTileThreads + thread.index(), row = at / kRuns, column = at % kRuns * kRun;
    // A row that nobody needs adds nothing to x, and where it has a norm, reads nothing and is zero; one that is not
    // there lends its lanes to the sums.
    const bool exists = place.row + row < place.rows, lives = exists && (needed == nullptr || needed[place.row + row]);
    const auto made_of = [&](int pack) { return exists ? place.count(row, pack * kTileSide + column) : 0; };
    const auto count_of = [&](int pack) { return lives ? made_of(pack) : 0; };
    float sum[kPacks][kRun], more[kRun];
    XFORMER_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int own = pack * kTileSide + column, count = count_of(pack);
      const int64_t element = place.element(row, own);
      load_run(thread, rooms[pack].at(row, column), lives ? kRun : 0, /*wide=*/true, sum[pack]);
      if (bias != nullptr) {
        load_run(thread, bias + own, count, wide, more);
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) sum[pack][k] += more[k];
      }
      if (count > 0) draws.apply(element, sum[pack]);
      load_run(thread, a.x + element, a.normed == nullptr ? made_of(pack) : count, wide, more);
      XFORMER_UNROLL
      for (int k = 0; k < kRun; ++k) sum[pack][k] += more[k];
      store_run(thread, sum[pack], made_of(pack), wide, a.sum + element);
    }
    if (a.normed == nullptr) continue;
    const RowStatistics<float> of = row_statistics(thread, sum, kRuns, width, a.epsilon, count_of);
    XFORMER_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int own = pack * kTileSide + column;
      norm_run(thread, of, a.weight + own, a.bias + own, count_of(pack), wide, sum[pack]);
      store_run(thread, sum[pack], made_of(pack), wide, a.normed + place.element(row, own));
    }
    if (column == 0 && exists) a.mean[place.row + row] = of.mean, a.rstd[place.row + row] = lives ? of.rstd : 0.0F;
  }
}

}  // namespace xformer::kernels
