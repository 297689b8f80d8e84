// Mixtures of tokens (token_projection.h) as device programs: products of tiles of the projection with tiles of a
// head's tokens, which lie where they are. Forwards a block has 64 mixtures of one head's x or y and walks over its
// tokens up to the last valid one; backwards it has 64 tokens and walks over the mixtures, or, for the projection's
// gradient, 64 by 64 numbers of that and walks over its part of the samples. Parts are added afterwards, in order.
#pragma once

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kProjectedWidest = 64;  // d; wider heads are left to plain operations

enum class ProjectionStage { kMixtures, kTokenGradients, kTableGradient };

struct ProjectionArguments {
  struct Side {  // x or y
    const float* tokens = nullptr;
    HeadPlaces places;
  };

  ProjectionStage stage = ProjectionStage::kMixtures;
  ProductKind product = ProductKind::kFloat;
  const float* table = nullptr;  // [heads,rows,columns]
  bool wide_table = false;       // its rows begin at sixteen bytes and are whole runs
  int64_t heads = 1, rows = 0, columns = 0;
  Side sides[2];
  int count = 1;                // sides
  const bool* valid = nullptr;  // [b,n]; null: all are
  int64_t b = 0, h = 0, n = 0;
  int d = 0;
  float* out = nullptr;             // [b,h,rows,count d]
  const float* gradient = nullptr;  // the same
  bool wide_gradient = false;       // its rows' halves begin at sixteen bytes and are whole runs
  float* d_tokens = nullptr;        // [count,b,n,h,d]
  float* d_tables = nullptr;        // [parts,heads,rows,columns]
  int64_t parts = 0;

  [[nodiscard]] constexpr int width() const { return count * d; }
  [[nodiscard]] XFORMER_DEVICE const bool* flags(int64_t sample) const {
    return valid == nullptr ? nullptr : valid + sample * n;
  }
  [[nodiscard]] XFORMER_DEVICE const float* table_of(int64_t head) const {
    return table + (heads == 1 ? 0 : head) * rows * columns;
  }
  // Mixtures, or their gradients, of a head and side.
  [[nodiscard]] XFORMER_DEVICE int64_t mixtures(int64_t sample, int64_t head, int side) const {
    return (sample * h + head) * rows * width() + side * d;
  }
  [[nodiscard]] XFORMER_DEVICE const float* tokens(int64_t sample, int64_t head, int side) const {
    const Side& one = sides[side];
    return one.tokens + sample * one.places.sample + head * one.places.head;
  }
};

// Heads of up to 32, or up to 64.
[[nodiscard]] constexpr int projection_width(int64_t d) { return d <= 32 ? 32 : 64; }
// Tiles of the projection's gradient, and of how many parts of the samples each is summed.
[[nodiscard]] constexpr int64_t table_tiles(int64_t heads, int64_t rows, int64_t columns) {
  return heads * tiles_of(rows) * tiles_of(columns);
}
[[nodiscard]] constexpr int64_t table_parts(int64_t b, int64_t tiles) {
  return std::clamp<int64_t>(kSpreadBlocks / tiles, 1, b);
}

[[nodiscard]] constexpr LaunchGrid projection_grid(const ProjectionArguments& a) {
  const int64_t units = a.b * a.h * a.count, bytes = 4 * kTileFloats * 4 + kTileThreads / kWarp * 4;
  switch (a.stage) {
    case ProjectionStage::kMixtures:
      return {units * tiles_of(a.rows), bytes};
    case ProjectionStage::kTokenGradients:
      return {units * tiles_of(a.n), bytes};
    default:
      return {a.parts * table_tiles(a.heads, a.rows, a.columns), bytes};
  }
}

// What a block holds: two places for each of the tiles that are multiplied.
struct ProjectionRoom {
  float* memory;
  int left_stride, right_stride;

  template <class Thread>
  XFORMER_DEVICE ProjectionRoom(const Thread& thread, int left_width, int right_width)
      : memory(static_cast<float*>(thread.shared())),
        left_stride(shared_stride(left_width)),
        right_stride(shared_stride(right_width)) {}

  [[nodiscard]] XFORMER_DEVICE SharedRows left(int turn) const { return {memory + turn * kTileFloats, left_stride}; }
  [[nodiscard]] XFORMER_DEVICE SharedRows right(int turn) const {
    return {memory + (2 + turn) * kTileFloats, right_stride};
  }
  [[nodiscard]] XFORMER_DEVICE int* ends() const { return reinterpret_cast<int*>(memory + 4 * kTileFloats); }
};

// The tile of a block that has `rows` of one side of a head, and the warp's own rows in it.
struct ProjectionTile {
  int64_t b, h;
  int side;
  int64_t first;
  int warp_row;
};
template <class Thread>
XFORMER_DEVICE ProjectionTile projection_tile(const Thread& thread, const ProjectionArguments& a, int64_t rows) {
  const int64_t tiles = tiles_of(rows), unit = thread.block() / tiles;
  return {unit / a.count / a.h, unit / a.count % a.h, static_cast<int>(unit % a.count),
          thread.block() % tiles * kTileSide, thread.index() / kWarp * kTileRows};
}

template <ProductKind kKind, int kWidth>
struct MixtureProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3;
  static constexpr int kTiles = kWidth / kTileColumns;
  ProjectionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const ProjectionRoom room(thread, kTileSide, kWidth);
    const auto [b, h, side, first, warp_row] = projection_tile(thread, a, a.rows);
    const bool* valid = a.flags(b);
    const int64_t end = trimmed_end(thread, valid, a.n, room.ends());
    const float* const table = a.table_of(h);
    const auto* const tokens = a.tokens(b, h, side);
    float sum[kTiles][4] = {};
    const auto send = [&](int64_t number, int turn) {
      const int64_t token = number * kTileSide;
      send_tile<kTileSide>(thread, table + token, {a.columns, a.wide_table}, static_cast<int>(end - token), first,
                           a.rows, nullptr, room.left(turn));
      send_tile<kWidth>(thread, tokens, a.sides[side].places, a.d, token, end, valid, room.right(turn));
    };
    walk_tiles(thread, tiles_of(end), send, [&](int64_t, int turn) {
      multiply_columns<kKind, /*kTurned=*/false, kTileSide, kTiles>(thread, room.left(turn), warp_row, room.right(turn),
                                                                    sum);
    });
    store_fragment<kTiles>(thread, sum, 1.0f, 1.0f, a.out + a.mixtures(b, h, side), a.width(), a.d, first + warp_row,
                           a.rows);
  }
};

template <ProductKind kKind, int kWidth>
struct MixedTokenProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3;
  static constexpr int kTiles = kWidth / kTileColumns;
  ProjectionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const ProjectionRoom room(thread, kTileSide, kWidth);
    const auto [b, h, side, first, warp_row] = projection_tile(thread, a, a.n);
    const bool* valid = a.flags(b);
    const int64_t end = trimmed_end(thread, valid, a.n, room.ends());
    const float *const table = a.table_of(h), *const gradient = a.gradient + a.mixtures(b, h, side);
    float sum[kTiles][4] = {};
    const auto send = [&](int64_t number, int turn) {
      const int64_t row = number * kTileSide;
      send_tile<kTileSide>(thread, table + first, {a.columns, a.wide_table}, static_cast<int>(end - first), row, a.rows,
                           nullptr, room.left(turn));
      send_tile<kWidth>(thread, gradient, {a.width(), a.wide_gradient}, a.d, row, a.rows, nullptr, room.right(turn));
    };
    walk_tiles(thread, first < end ? tiles_of(a.rows) : 0, send, [&](int64_t, int turn) {
      multiply_columns<kKind, /*kTurned=*/true, kTileSide, kTiles>(thread, room.left(turn), warp_row, room.right(turn),
                                                                   sum);
    });
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t token = first + warp_row + place.row + (i >= 2 ? 8 : 0);
        if (token >= end || (valid != nullptr && !valid[token])) sum[j][i] = 0;  // whatever the gradient is
      }
    }
    store_fragment<kTiles>(thread, sum, 1.0f, 1.0f, a.d_tokens + ((side * a.b + b) * a.n * a.h + h) * a.d, a.h * a.d,
                           a.d, first + warp_row, a.n);
  }
};

template <ProductKind kKind, int kWidth>
struct TableGradientProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3;
  static constexpr int kTiles = kTileSide / kTileColumns;
  ProjectionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const ProjectionRoom room(thread, kWidth, kWidth);
    const int64_t tiles = table_tiles(a.heads, a.rows, a.columns), part = thread.block() / tiles;
    const int64_t tile = thread.block() % tiles, across = tiles_of(a.columns), down = tiles_of(a.rows);
    const int64_t table = tile / across / down, row = tile / across % down * kTileSide;
    const int64_t column = tile % across * kTileSide;
    const int64_t from_head = a.heads == 1 ? 0 : table, to_head = a.heads == 1 ? a.h : table + 1;
    const int warp_row = thread.index() / kWarp * kTileRows;
    float sum[kTiles][4] = {};
    for (int64_t b = part * a.b / a.parts; b < (part + 1) * a.b / a.parts; ++b) {
      if (column >= a.n) break;
      const bool* valid = a.flags(b);
      const int64_t seen = std::min<int64_t>(kTileSide, a.n - column);
      if (valid != nullptr) valid += column;
      const int64_t end = column + trimmed_end(thread, valid, seen, room.ends());
      if (end == column) continue;
      const auto send = [&](int64_t number, int turn) {
        const int64_t h = from_head + number / a.count;
        const int side = static_cast<int>(number % a.count);
        send_tile<kWidth>(thread, a.gradient + a.mixtures(b, h, side), {a.width(), a.wide_gradient}, a.d, row, a.rows,
                          nullptr, room.left(turn));
        send_tile<kWidth>(thread, a.tokens(b, h, side), a.sides[side].places, a.d, column, end,
                          valid == nullptr ? nullptr : valid - column, room.right(turn));
      };
      walk_tiles(thread, (to_head - from_head) * a.count, send, [&](int64_t, int turn) {
        multiply_rows<kKind, kWidth, kTiles>(thread, room.left(turn), warp_row, room.right(turn), sum);
      });
    }
    float* const into = a.d_tables + (part * a.heads + table) * a.rows * a.columns;
    store_tile(thread, sum, nullptr, {row, column, a.rows, a.columns}, a.wide_table,
               SharedRows{room.memory, shared_stride(kTileSide)}, into);
  }
};

// launch(grid, program) of these arguments' stage.
template <ProductKind kKind, int kWidth, class Launch>
auto run_projection(const ProjectionArguments& a, const Launch& launch) {
  const LaunchGrid grid = projection_grid(a);
  switch (a.stage) {
    case ProjectionStage::kMixtures:
      return launch(grid, MixtureProgram<kKind, kWidth>{a});
    case ProjectionStage::kTokenGradients:
      return launch(grid, MixedTokenProgram<kKind, kWidth>{a});
    default:
      return launch(grid, TableGradientProgram<kKind, kWidth>{a});
  }
}
template <class Launch>
auto run_projection(const ProjectionArguments& a, const Launch& launch) {
  const bool narrow = projection_width(a.d) == 32;
  if (a.product == ProductKind::kTf32)
    return narrow ? run_projection<ProductKind::kTf32, 32>(a, launch)
                  : run_projection<ProductKind::kTf32, 64>(a, launch);
  return narrow ? run_projection<ProductKind::kFloat, 32>(a, launch)
                : run_projection<ProductKind::kFloat, 64>(a, launch);
}

}  // namespace xformer::kernels
