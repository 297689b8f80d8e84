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

// From the block's products, 16 rows of each warp by kPacks tiles of columns, and a bias of the columns (null: none).
// place: of the first tile. `rooms`: kPacks tiles that nobody reads any more after the barrier in here.
template <int kPacks, class Thread>
XFORMER_DEVICE void store_residual(const Thread& thread, const float (*products)[4], const float* bias,
                                   const ResidualEpilogue& a, const TilePlace& place, bool wide,
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
    float sum[kPacks][kRun], more[kRun];
    XFORMER_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int own = pack * kTileSide + column, count = place.count(row, own);
      const int64_t element = place.element(row, own);
      load_run(thread, rooms[pack].at(row, column), kRun, /*wide=*/true, sum[pack]);
      if (bias != nullptr) {
        load_run(thread, bias + own, count, wide, more);
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) sum[pack][k] += more[k];
      }
      if (count > 0) draws.apply(element, sum[pack]);
      load_run(thread, a.x + element, count, wide, more);
      XFORMER_UNROLL
      for (int k = 0; k < kRun; ++k) sum[pack][k] += more[k];
      store_run(thread, sum[pack], count, wide, a.sum + element);
    }
    if (a.normed == nullptr) continue;
    const auto count_of = [&](int pack) { return place.count(row, pack * kTileSide + column); };
    const RowStatistics<float> of = row_statistics(thread, sum, kRuns, width, a.epsilon, count_of);
    XFORMER_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int own = pack * kTileSide + column, count = count_of(pack);
      norm_run(thread, of, a.weight + own, a.bias + own, count, wide, sum[pack]);
      store_run(thread, sum[pack], count, wide, a.normed + place.element(row, own));
    }
    if (column == 0 && place.row + row < place.rows)
      a.mean[place.row + row] = of.mean, a.rstd[place.row + row] = of.rstd;
  }
}

}  // namespace xformer::kernels
