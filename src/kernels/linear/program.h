// Linear maps (linear.h) as device programs: a block holds 64 rows in shared memory, multiplies them by tiles of the
// weights and stores 64 by 64 of the results at a time. Forwards these are columns of all maps' results; backwards,
// for the gradient of the input, columns of the input, with the sum over all maps in registers.
#pragma once

#include <algorithm>

#include "kernels/device/needed.h"
#include "kernels/residual_norm/norm_tile.h"

namespace xformer::kernels {

inline constexpr int kMostMaps = 4;                        // of one launch
inline constexpr int64_t kMostWeights = int64_t{1} << 16;  // of a map: linear/autocast.h

struct LinearArguments {
  struct Map {
    const float *weight = nullptr, *bias = nullptr;  // [out, in], [out] or null
    Stored gradient;                                 // [rows, out], read backwards
    StoredTo result;                                 // [rows, out], written forwards
    int64_t out = 0;
  };

  ProductKind product = ProductKind::kFloat;
  ElementType half = ElementType::kFloat;  // of what is stored in sixteen bits, and multiplied so
  Stored x;                                // [rows, in], read forwards
  TileNorm norm;                           // of x before the maps take it; then it is floats
  StoredTo x_gradient;                     // [rows, in], written backwards
  const bool* needed = nullptr;            // [rows]; null: all are
  int64_t rows = 0, in = 0;
  int count = 0;
  bool wide = false;  // all begins at sixteen bytes, and all widths are multiples of kRun
  Map maps[kMostMaps];
};

// Tiles of columns of the results, or of the input.
[[nodiscard]] constexpr int64_t linear_columns(const LinearArguments& a, bool backward) {
  int64_t tiles = 0;
  for (int i = 0; i < a.count; ++i) tiles += tiles_of(a.maps[i].out);
  return backward ? tiles_of(a.in) : tiles;
}

// A block for each 64 rows takes all columns; where that makes few blocks, several share them. It has the rows, and
// behind them weights or, when these are multiplied, the result.
[[nodiscard]] constexpr LaunchGrid linear_grid(int64_t rows, int64_t column_tiles,
                                               ElementType half = ElementType::kFloat) {
  const int64_t row_tiles = tiles_of(rows);
  return {row_tiles * std::clamp<int64_t>(kSpreadBlocks / row_tiles, 1, column_tiles),
          operand_bytes(half) + kTileFloats * 4};
}

template <ProductKind kKind, bool kBackward, class Half>
struct LinearProgram {
  static constexpr int kThreads = kTileThreads, kResident = 4;
  using Tile = OperandTile<kKind, Half>;
  LinearArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const memory = static_cast<char*>(thread.shared());
    const Tile rows(memory), weights(memory + Tile::kBytes);
    const SharedRows room{reinterpret_cast<float*>(memory + Tile::kBytes), shared_stride(kTileSide)};
    const int64_t row_tiles = tiles_of(a.rows), first = thread.block() % row_tiles * kTileSide;
    if (tile_need<kTileSide>(thread, a.needed, first, a.rows) == TileNeed::kNone) return clear(thread, first);
    const int64_t tiles = linear_columns(a, kBackward);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const void* held = nullptr;  // what the tile of rows holds is of this matrix,
    int64_t held_place = 0;      // from this column on
    for (int64_t tile = thread.block() / row_tiles; tile < tiles; tile += thread.blocks() / row_tiles) {
      float sum[kTileSide / kTileColumns][4] = {};
      const auto hold = [&](const Stored& from, int64_t width, int64_t place) {
        thread.sync();
        if (held == from.at && held_place == place) return;
        held = from.at, held_place = place;
        if constexpr (!kBackward)
          if (a.norm.defined())
            return put_normed</*kAgain=*/false, kTileSide>(thread, a.norm, static_cast<const float*>(from.at),
                                                           {width, a.wide}, place, first, a.rows, a.needed,
                                                           /*keeps=*/thread.block() < row_tiles, rows);
        with_stored<Half>(from, [&](const auto* matrix) {
          rows.send(thread, matrix + place, {width, a.wide}, static_cast<int>(width - place), first, a.rows);
        });
      };
      if constexpr (kBackward) {
        const int64_t column = tile * kTileSide;
        for (int i = 0; i < a.count; ++i) {
          const LinearArguments::Map& map = a.maps[i];
          for (int64_t place = 0; place < map.out; place += kTileSide) {
            hold(map.gradient, map.out, place);
            weights.send(thread, map.weight + column, {a.in, a.wide}, static_cast<int>(a.in - column), place, map.out);
            await_sent(thread);
            thread.sync();
            rows.template by_columns</*kTurned=*/false, kTileSide>(thread, warp_row, weights, sum);
          }
        }
        with_stored<Half>(a.x_gradient, [&](auto* to) {
          store_tile(thread, sum, nullptr, {first, column, a.rows, a.in}, a.wide, room, to, a.needed);
        });
      } else {
        int which = 0;
        int64_t own = tile;  // among the map's tiles
        for (; own >= tiles_of(a.maps[which].out); ++which) own -= tiles_of(a.maps[which].out);
        const LinearArguments::Map& map = a.maps[which];
        const int64_t column = own * kTileSide;
        for (int64_t place = 0; place < a.in; place += kTileSide) {
          hold(a.x, a.in, place);
          weights.send(thread, map.weight + place, {a.in, a.wide}, static_cast<int>(a.in - place), column, map.out);
          await_sent(thread);
          thread.sync();
          rows.by_rows(thread, warp_row, weights, sum);
        }
        with_stored<Half>(map.result, [&](auto* to) {
          store_tile(thread, sum, map.bias, {first, column, a.rows, map.out}, a.wide, room, to, a.needed);
        });
      }
    }
  }

 private:
  // Zeros in the columns that this block would make.
  template <class Thread>
  XFORMER_DEVICE void clear(const Thread& thread, int64_t first) const {
    const int64_t row_tiles = tiles_of(a.rows), share = thread.blocks() / row_tiles;
    int64_t tile = thread.block() / row_tiles;  // among the map's
    for (int i = 0; i < (kBackward ? 1 : a.count); ++i) {
      const StoredTo& made = kBackward ? a.x_gradient : a.maps[i].result;
      const int64_t width = kBackward ? a.in : a.maps[i].out;
      for (; tile < tiles_of(width); tile += share)
        with_stored<Half>(made, [&](auto* to) {
          clear_tile(thread, {first, tile * kTileSide, a.rows, width}, a.wide, to);
        });
      tile -= tiles_of(width);
    }
  }
};

// run(a product kind of floats, a value of the type of what is stored in sixteen bits, float if nothing is), as
// constants.
template <class Types, class Run>
auto with_products(ProductKind kind, ElementType half, const Run& run) {
  using Tf32 = std::integral_constant<ProductKind, ProductKind::kTf32>;
  if (half == ElementType::kHalf) return run(Tf32(), typename Types::Half());
  if (half == ElementType::kBFloat16) return run(Tf32(), typename Types::BFloat16());
  if (kind == ProductKind::kTf32) return run(Tf32(), float());
  return run(std::integral_constant<ProductKind, ProductKind::kFloat>(), float());
}

// launch(grid, program).
template <class Types, class Launch>
auto run_linear(const LinearArguments& a, bool backward, const Launch& launch) {
  const LaunchGrid grid = linear_grid(a.rows, linear_columns(a, backward), a.half);
  return with_products<Types>(a.product, a.half, [&](auto kind, auto half) {
    return backward ? launch(grid, LinearProgram<kind(), true, decltype(half)>{a})
                    : launch(grid, LinearProgram<kind(), false, decltype(half)>{a});
  });
}

}  // namespace xformer::kernels
