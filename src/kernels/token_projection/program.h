// Mixtures of tokens (token_projection.h) as device programs: products of tiles of the projection with tiles of a
// head's tokens, which lie where they are. Forwards a block has 64 mixtures of one head's x and y, side by side where
// both are narrow, else of one of them, and walks over its tokens up to the last valid one; backwards it has 64 tokens
// and walks over the mixtures, or, for the projection's gradient, 64 by 64 numbers of that and walks over its part of
// the samples. Parts are added afterwards, in order.
#pragma once

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kProjectedWidest = 64;  // d; wider heads are left to plain operations

enum class ProjectionStage { kMixtures, kTokenGradients, kTableGradient };

struct ProjectionArguments {
  struct Side {  // x or y
    const void* tokens = nullptr;
    HeadPlaces places;
  };

  ProjectionStage stage = ProjectionStage::kMixtures;
  ProductKind product = ProductKind::kFloat;
  ElementType type = ElementType::kFloat;  // of tokens, mixtures and their gradients
  const float* table = nullptr;            // [heads,rows,columns]
  bool wide_table = false;                 // its rows begin at sixteen bytes and are whole runs
  int64_t heads = 1, rows = 0, columns = 0;
  Side sides[2];
  int count = 1;                // sides
  const bool* valid = nullptr;  // [b,n]; null: all are
  int64_t b = 0, h = 0, n = 0;
  int d = 0;
  void* out = nullptr;             // [b,h,rows,count d]
  const void* gradient = nullptr;  // the same
  bool wide_gradient = false;      // its rows' halves begin at sixteen bytes and are whole runs
  void* d_tokens = nullptr;        // [count,b,n,h,d]
  float* d_tables = nullptr;       // [parts,heads,rows,columns]
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
  template <class Value>
  [[nodiscard]] XFORMER_DEVICE const Value* tokens(int64_t sample, int64_t head, int side) const {
    const Side& one = sides[side];
    return static_cast<const Value*>(one.tokens) + sample * one.places.sample + head * one.places.head;
  }
  // Sides that a block has next to each other, and the columns of a tile that each of them takes.
  [[nodiscard]] constexpr int sides_at_once() const { return d <= kTileSide / 2 ? count : 1; }
  [[nodiscard]] constexpr int side_width() const { return d <= kTileSide / 2 ? kTileSide / 2 : kTileSide; }
  [[nodiscard]] constexpr int64_t units() const { return b * h * (count / sides_at_once()); }
};

// Tiles of the projection's gradient, and of how many parts of the samples each is summed: three blocks for each
// multiprocessor of a large device.
[[nodiscard]] constexpr int64_t table_tiles(int64_t heads, int64_t rows, int64_t columns) {
  return heads * tiles_of(rows) * tiles_of(columns);
}
[[nodiscard]] constexpr int64_t table_parts(int64_t b, int64_t tiles) {
  return std::clamp<int64_t>(kSpreadBlocks / 2 * 3 / tiles, 1, b);
}

// What a block holds: two places for each of the tiles that are multiplied, of so many columns.
struct ProjectionRoom {
  float* memory;
  int left_stride, right_stride;

  template <class Thread>
  XFORMER_DEVICE ProjectionRoom(const Thread& thread, int left_width, int right_width)
      : memory(static_cast<float*>(thread.shared())),
        left_stride(shared_stride(left_width)),
        right_stride(shared_stride(right_width)) {}

  [[nodiscard]] static constexpr int64_t bytes(int left_width, int right_width) {
    return 2 * kTileSide * (shared_stride(left_width) + shared_stride(right_width)) * 4 + kTileThreads / kWarp * 4;
  }
  [[nodiscard]] XFORMER_DEVICE SharedRows left(int turn) const {
    return {memory + turn * kTileSide * left_stride, left_stride};
  }
  // Those of a side begin behind the sides before it.
  [[nodiscard]] XFORMER_DEVICE SharedRows right(int turn, int column = 0) const {
    return {memory + kTileSide * (2 * left_stride + turn * right_stride) + column, right_stride};
  }
  [[nodiscard]] XFORMER_DEVICE int* ends() const {
    return reinterpret_cast<int*>(memory + 2 * kTileSide * (left_stride + right_stride));
  }
};

[[nodiscard]] constexpr LaunchGrid projection_grid(const ProjectionArguments& a) {
  const int width = a.sides_at_once() * a.side_width();
  switch (a.stage) {
    case ProjectionStage::kMixtures:
      return {a.units() * tiles_of(a.rows), ProjectionRoom::bytes(kTileSide, width)};
    case ProjectionStage::kTokenGradients:
      return {a.units() * tiles_of(a.n), ProjectionRoom::bytes(kTileSide, width)};
    default:
      return {a.parts * table_tiles(a.heads, a.rows, a.columns), ProjectionRoom::bytes(width, width)};
  }
}

// The tile of a block that has `rows` of a head's sides from one on, and the warp's own rows in it.
struct ProjectionTile {
  int64_t b, h;
  int side;
  int64_t first;
  int warp_row;
};
template <int kSides, class Thread>
XFORMER_DEVICE ProjectionTile projection_tile(const Thread& thread, const ProjectionArguments& a, int64_t rows) {
  const int64_t tiles = tiles_of(rows), unit = thread.block() / tiles, units = a.count / kSides;
  return {unit / units / a.h, unit / units % a.h, static_cast<int>(unit % units), thread.block() % tiles * kTileSide,
          thread.index() / kWarp * kTileRows};
}

// kSides sides of a head of up to kWidth each.
template <class Value, ProductKind kKind, int kWidth, int kSides>
struct MixtureProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3;
  static constexpr int kColumns = kWidth * kSides, kTiles = kWidth / kTileColumns;
  ProjectionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const ProjectionRoom room(thread, kTileSide, kColumns);
    const auto [b, h, side, first, warp_row] = projection_tile<kSides>(thread, a, a.rows);
    const bool* valid = a.flags(b);
    const int64_t end = trimmed_end(thread, valid, a.n, room.ends());
    const float* const table = a.table_of(h);
    float sum[kSides * kTiles][4] = {};
    const auto send = [&](int64_t number, int turn) {
      const int64_t token = number * kTileSide;
      send_tile<kTileSide>(thread, table + token, {a.columns, a.wide_table}, static_cast<int>(end - token), first,
                           a.rows, nullptr, room.left(turn));
      XFORMER_UNROLL
      for (int i = 0; i < kSides; ++i)
        send_tile<kWidth>(thread, a.tokens<Value>(b, h, side + i), a.sides[side + i].places, a.d, token, end, valid,
                          room.right(turn, i * kWidth));
    };
    walk_tiles(thread, tiles_of(end), send, [&](int64_t, int turn) {
      multiply_columns<kKind, /*kTurned=*/false, kTileSide, kSides * kTiles>(thread, room.left(turn), warp_row,
                                                                             room.right(turn), sum);
    });
    XFORMER_UNROLL
    for (int i = 0; i < kSides; ++i)
      store_fragment<kTiles>(thread, sum + i * kTiles, 1.0f, 1.0f,
                             static_cast<Value*>(a.out) + a.mixtures(b, h, side + i), a.width(), a.d, first + warp_row,
                             a.rows);
  }
};

template <class Value, ProductKind kKind, int kWidth, int kSides>
struct MixedTokenProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3;
  static constexpr int kColumns = kWidth * kSides, kTiles = kWidth / kTileColumns;
  ProjectionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const ProjectionRoom room(thread, kTileSide, kColumns);
    const auto [b, h, side, first, warp_row] = projection_tile<kSides>(thread, a, a.n);
    const bool* valid = a.flags(b);
    const int64_t end = trimmed_end(thread, valid, a.n, room.ends());
    const float* const table = a.table_of(h);
    float sum[kSides * kTiles][4] = {};
    const auto send = [&](int64_t number, int turn) {
      const int64_t row = number * kTileSide;
      send_tile<kTileSide>(thread, table + first, {a.columns, a.wide_table}, static_cast<int>(end - first), row, a.rows,
                           nullptr, room.left(turn));
      XFORMER_UNROLL
      for (int i = 0; i < kSides; ++i)
        send_tile<kWidth>(thread, static_cast<const Value*>(a.gradient) + a.mixtures(b, h, side + i),
                          {a.width(), a.wide_gradient}, a.d, row, a.rows, nullptr, room.right(turn, i * kWidth));
    };
    walk_tiles(thread, first < end ? tiles_of(a.rows) : 0, send, [&](int64_t, int turn) {
      multiply_columns<kKind, /*kTurned=*/true, kTileSide, kSides * kTiles>(thread, room.left(turn), warp_row,
                                                                            room.right(turn), sum);
    });
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int j = 0; j < kSides * kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t token = first + warp_row + place.row + (i >= 2 ? 8 : 0);
        if (token >= end || (valid != nullptr && !valid[token])) sum[j][i] = 0;  // whatever the gradient is
      }
    }
    XFORMER_UNROLL
    for (int i = 0; i < kSides; ++i)
      store_fragment<kTiles>(thread, sum + i * kTiles, 1.0f, 1.0f,
                             static_cast<Value*>(a.d_tokens) + (((side + i) * a.b + b) * a.n * a.h + h) * a.d,
                             a.h * a.d, a.d, first + warp_row, a.n);
  }
};

template <class Value, ProductKind kKind, int kWidth, int kSides>
struct TableGradientProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3;
  static constexpr int kColumns = kWidth * kSides, kTiles = kTileSide / kTileColumns;
  ProjectionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const ProjectionRoom room(thread, kColumns, kColumns);
    const int64_t tiles = table_tiles(a.heads, a.rows, a.columns), part = thread.block() / tiles;
    const int64_t tile = thread.block() % tiles, across = tiles_of(a.columns), down = tiles_of(a.rows);
    const int64_t table = tile / across / down, row = tile / across % down * kTileSide;
    const int64_t column = tile % across * kTileSide, units = a.count / kSides;
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
        const int64_t h = from_head + number / units;
        XFORMER_UNROLL
        for (int i = 0; i < kSides; ++i) {
          const int side = static_cast<int>(number % units) + i;
          const SharedRows left = room.left(turn);
          send_tile<kWidth>(thread, static_cast<const Value*>(a.gradient) + a.mixtures(b, h, side),
                            {a.width(), a.wide_gradient}, a.d, row, a.rows, nullptr,
                            {left.values + i * kWidth, left.stride});
          send_tile<kWidth>(thread, a.tokens<Value>(b, h, side), a.sides[side].places, a.d, column, end,
                            valid == nullptr ? nullptr : valid - column, room.right(turn, i * kWidth));
        }
      };
      walk_tiles(thread, (to_head - from_head) * units, send, [&](int64_t, int turn) {
        multiply_rows<kKind, kColumns, kTiles>(thread, room.left(turn), warp_row, room.right(turn), sum);
      });
    }
    float* const into = a.d_tables + (part * a.heads + table) * a.rows * a.columns;
    store_tile(thread, sum, nullptr, {row, column, a.rows, a.columns}, a.wide_table,
               SharedRows{room.memory, shared_stride(kTileSide)}, into);
  }
};

// launch(grid, program) of these arguments' stage.
template <class Value, ProductKind kKind, int kWidth, int kSides, class Launch>
void run_projection(const ProjectionArguments& a, const Launch& launch) {
  const LaunchGrid grid = projection_grid(a);
  switch (a.stage) {
    case ProjectionStage::kMixtures:
      return launch(grid, MixtureProgram<Value, kKind, kWidth, kSides>{a});
    case ProjectionStage::kTokenGradients:
      return launch(grid, MixedTokenProgram<Value, kKind, kWidth, kSides>{a});
    case ProjectionStage::kTableGradient:
      return launch(grid, TableGradientProgram<Value, kKind, kWidth, kSides>{a});
  }
}
// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_projection(const ProjectionArguments& a, const Launch& launch) {
  with_heads<Types>(a.type, a.product,
                    [&]<class Value, ProductKind kKind>(Value, std::integral_constant<ProductKind, kKind>) {
                      if (a.side_width() == kTileSide) run_projection<Value, kKind, kTileSide, 1>(a, launch);
                      else if (a.sides_at_once() == 1) run_projection<Value, kKind, kTileSide / 2, 1>(a, launch);
                      else run_projection<Value, kKind, kTileSide / 2, 2>(a, launch);
                    });
}

}  // namespace xformer::kernels
