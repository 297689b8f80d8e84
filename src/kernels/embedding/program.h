// Token and position embedding (embedding.h) as device programs. Forwards a thread has a run of one token's row.
// Backwards the gradient of the tokens' table is a product, of which token stands in each row with the rows' gradients,
// in blocks of 64 tokens by 64 columns that walk over their part of the rows: nothing is added by atomics, and parts
// are added by one more launch, in order. It is as good as float's at any precision. Four lanes of a warp share a run
// of the positions' gradient and add every fourth sample of it each.
#pragma once

#include <cmath>

#include "kernels/device/needed.h"
#include "kernels/device/part_sums.h"
#include "kernels/device/tile.h"

namespace xformer::kernels {

inline constexpr int kEmbeddingThreads = 256;
inline constexpr int kPositionLanes = 4;      // of a run of the positions' gradient
inline constexpr int64_t kMostTokens = 1024;  // of a table; larger ones are left to plain operations

enum class EmbeddingStage { kRows, kTokenGradient, kPositionGradient };

struct EmbeddingArguments {
  EmbeddingStage stage = EmbeddingStage::kRows;
  const float *tokens = nullptr, *positions = nullptr;  // [vocabulary,m], [at least n,m] or null
  const int64_t* ids = nullptr;                         // [b,n]; rows of others than 0 .. vocabulary - 1 are NaN
  const bool* needed = nullptr;                         // [b,n]; null: all rows are
  float* out = nullptr;                                 // [b,n,m]
  const float* gradient = nullptr;                      // [b,n,m]
  float* tables = nullptr;                              // [parts,vocabulary,m]
  float* sums = nullptr;                                // [vocabulary,m]; of one part the tables themselves
  float* d_positions = nullptr;                         // [position_rows,m]
  int64_t b = 0, n = 0, m = 0, vocabulary = 0, position_rows = 0;
  bool wide = false;  // all rows begin at sixteen bytes and are whole runs
  DeviceDrop drop;

  [[nodiscard]] XFORMER_DEVICE bool needs(int64_t row) const { return needed == nullptr || needed[row]; }
};

[[nodiscard]] constexpr RowDivision embedding_division(const EmbeddingArguments& a) {
  return row_division(a.b * a.n, tiles_of(a.vocabulary) * tiles_of(a.m), kSpreadBlocks / 2 * 3);
}
[[nodiscard]] constexpr LaunchGrid embedding_grid(const EmbeddingArguments& a) {
  if (a.stage == EmbeddingStage::kTokenGradient)
    return {embedding_division(a).parts * tiles_of(a.vocabulary) * tiles_of(a.m), 2 * kTileFloats * 4};
  const bool all = a.stage == EmbeddingStage::kRows;
  const int64_t rows = all ? a.b * a.n : a.position_rows, runs = kEmbeddingThreads / (all ? 1 : kPositionLanes);
  return {(rows * runs_of(a.m) + runs - 1) / runs, 0};
}

// A run of a row.
struct EmbeddingPlace {
  int64_t row, column;
  int count;

  XFORMER_DEVICE EmbeddingPlace(int64_t place, int64_t rows, int64_t m) {
    row = place / runs_of(m), column = place % runs_of(m) * kRun;
    count = row < rows ? run_length(m - column) : 0;
  }
};

struct EmbeddingProgram {
  static constexpr int kThreads = kEmbeddingThreads, kResident = 4;
  EmbeddingArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const EmbeddingPlace place(thread.block() * kThreads + thread.index(), a.b * a.n, a.m);
    if (place.count == 0) return;
    const int64_t id = a.ids[place.row], element = place.row * a.m + place.column;
    float values[kRun] = {}, more[kRun];
    if (!a.needs(place.row)) return store_run(thread, values, place.count, a.wide, a.out + element);
    if (id >= 0 && id < a.vocabulary) {
      load_run(thread, a.tokens + id * a.m + place.column, place.count, a.wide, values);
    } else {
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) values[i] = NAN;
    }
    if (a.positions != nullptr) {
      load_run(thread, a.positions + place.row % a.n * a.m + place.column, place.count, a.wide, more);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) values[i] += more[i];
    }
    DeviceDraws(a.drop).apply(element, values);
    store_run(thread, values, place.count, a.wide, a.out + element);
  }
};

struct PositionGradientProgram {
  static constexpr int kThreads = kEmbeddingThreads, kResident = 3;
  static constexpr int kRuns = kWarp / kPositionLanes;  // of a warp, next to each other
  EmbeddingArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t warp = thread.block() * (kThreads / kWarp) + thread.index() / kWarp;
    const EmbeddingPlace place(warp * kRuns + thread.index() % kRuns, a.position_rows, a.m);
    const int64_t first = thread.index() % kWarp / kRuns, end = place.count > 0 && place.row < a.n ? a.b : 0;
    const DeviceDraws draws(a.drop);
    float sum[kRun] = {}, more[kRun];
    for (int64_t b = first; b < end; b += kPositionLanes) {
      if (!a.needs(b * a.n + place.row)) continue;
      const int64_t element = (b * a.n + place.row) * a.m + place.column;
      load_run(thread, a.gradient + element, place.count, a.wide, more);
      draws.apply(element, more);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) sum[i] += more[i];
    }
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) sum[i] = lane_sum(thread, sum[i], kRuns, kWarp);
    if (first == 0 && place.count > 0)
      store_run(thread, sum, place.count, a.wide, a.d_positions + place.row * a.m + place.column);
  }
};

template <ProductKind kKind>
struct TokenGradientProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3;
  static constexpr int kTiles = kTileSide / kTileColumns;
  EmbeddingArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kTileSide);
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows which{memory, kStride}, slopes{memory + kTileFloats, kStride};
    const DeviceDraws draws(a.drop);
    const RowDivision division = embedding_division(a);
    const int64_t across = tiles_of(a.m), tiles = tiles_of(a.vocabulary) * across, part = thread.block() / tiles;
    const int64_t token = thread.block() % tiles / across * kTileSide, column = thread.block() % across * kTileSide;
    const int64_t rows = a.b * a.n, end = std::min(rows, (part + 1) * division.part_tiles * kTileSide);
    const int warp_row = thread.index() / kWarp * kTileRows;
    float sum[kTiles][4] = {};
    for (int64_t row = part * division.part_tiles * kTileSide; row < end; row += kTileSide) {
      const TilePlace place{row, column, end, a.m};
      if (tile_need<kTileSide>(thread, a.needed, row, end) == TileNeed::kNone) continue;
      thread.sync();
      for_runs(thread, slopes, [&](int i, int j, float* values) {
        const int64_t element = place.element(i, j);
        const bool lives = row + i < end && a.needs(row + i);
        const int count = lives ? place.count(i, j) : 0;
        load_run(thread, a.gradient + element, count, a.wide, values);
        if (count > 0) draws.apply(element, values);
        put_run(thread, values, slopes.at(i, j));
        const int64_t own = lives ? a.ids[row + i] - token : -1;
        XFORMER_UNROLL
        for (int k = 0; k < kRun; ++k) values[k] = own == j + k ? 1.0f : 0.0f;
        put_run(thread, values, which.at(i, j));
      });
      thread.sync();
      if (token + warp_row < a.vocabulary)
        multiply_columns<kKind, /*kTurned=*/true, kTileSide, kTiles>(thread, which, warp_row, slopes, sum);
    }
    store_tile(thread, sum, nullptr, {token, column, a.vocabulary, a.m}, a.wide, which,
               a.tables + part * a.vocabulary * a.m);
  }
};

// launch(grid, program) for the programs of these arguments' stage, one behind the other.
template <class Launch>
void run_embedding(const EmbeddingArguments& a, const Launch& launch) {
  const LaunchGrid grid = embedding_grid(a);
  switch (a.stage) {
    case EmbeddingStage::kRows:
      return launch(grid, EmbeddingProgram{a});
    case EmbeddingStage::kTokenGradient: {
      launch(grid, TokenGradientProgram<ProductKind::kFloat>{a});
      const PartSumsArguments sums{a.tables, a.sums, embedding_division(a).parts, a.vocabulary * a.m};
      if (sums.count > 1) run_part_sums(sums, launch);
      return;
    }
    case EmbeddingStage::kPositionGradient:
      return launch(grid, PositionGradientProgram{a});
  }
}

}  // namespace xformer::kernels
