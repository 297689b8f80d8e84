// Gradients of the weights and biases of linear maps as a device program: a block keeps 64 by 64 of one gradient in
// registers while it walks over its part of the rows, and writes it once. Parts are added by one more launch, in order.
#pragma once

#include <algorithm>

#include "kernels/device/part_sums.h"
#include "kernels/linear/program.h"

namespace xformer::kernels {

struct WeightGradientArguments {
  // dW = gradient^T input [out, in] at `start` of a part's table, and behind it, with `bias`, the gradient's sum [out].
  struct Map {
    Stored gradient, input;  // [rows, out], [rows, in]
    int64_t out = 0, in = 0, start = 0;
    bool bias = false;
  };

  ProductKind product = ProductKind::kFloat;
  ElementType half = ElementType::kFloat;  // as LinearArguments has it
  TileNorm norm;                           // that the inputs had, made again
  const bool* needed = nullptr;            // [rows]; null: all are
  int64_t rows = 0;
  float* tables = nullptr;  // [parts, table]
  float* sums = nullptr;    // [table]; of one part the table itself
  int64_t table = 0, parts = 0;
  int count = 0;
  bool wide = false;  // all begins at sixteen bytes, and all widths are multiples of kRun
  Map maps[kMostMaps];
};

[[nodiscard]] constexpr int64_t weight_tiles(const WeightGradientArguments::Map& map) {
  return tiles_of(map.out) * tiles_of(map.in);
}
[[nodiscard]] constexpr int64_t weight_tiles(const WeightGradientArguments& a) {
  int64_t tiles = 0;
  for (int i = 0; i < a.count; ++i) tiles += weight_tiles(a.maps[i]);
  return tiles;
}

// Four blocks for each multiprocessor of a large device.
[[nodiscard]] constexpr RowDivision weight_division(int64_t rows, int64_t tiles) {
  return row_division(rows, tiles, 2 * kSpreadBlocks);
}

[[nodiscard]] constexpr LaunchGrid weight_grid(const WeightGradientArguments& a) {
  return {a.parts * weight_tiles(a), 2 * kTileFloats * 4};
}

template <ProductKind kKind, class Half>
struct WeightGradientProgram {
  static constexpr int kThreads = kTileThreads, kResident = 4;
  using Tile = OperandTile<kKind, Half>;
  static constexpr int kStepRows = Tile::kStepRows;  // so that four blocks find room
  WeightGradientArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const memory = static_cast<char*>(thread.shared());
    const auto slope_tile = [&](int turn) { return tile(memory, turn); };
    const auto input_tile = [&](int turn) { return tile(memory, 2 + turn); };
    const int64_t tiles = weight_tiles(a), part = thread.block() / tiles;
    int which = 0;
    int64_t own = thread.block() % tiles;  // among the map's tiles
    for (; own >= weight_tiles(a.maps[which]); ++which) own -= weight_tiles(a.maps[which]);
    const WeightGradientArguments::Map& map = a.maps[which];
    const int64_t across = tiles_of(map.in), out = own / across * kTileSide, in = own % across * kTileSide;
    const int64_t part_rows = weight_division(a.rows, tiles).part_tiles * kTileSide;
    const int64_t end = std::min(a.rows, (part + 1) * part_rows);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const bool sums_bias = map.bias && in == 0 && thread.index() < kTileSide && out + thread.index() < map.out;
    float sum[kTileSide / kTileColumns][4] = {}, bias = 0;
    // Rows that nobody needs are zeros; steps without any other are left out.
    const auto send = [&](int64_t number, int turn) {
      const int64_t row = part * part_rows + number * kStepRows;
      const TileNeed need = tile_need<kStepRows>(thread, a.needed, row, end);
      if (need == TileNeed::kNone) return;
      const bool* const needed = need == TileNeed::kSome ? a.needed : nullptr;
      with_stored<Half>(map.gradient, [&](const auto* matrix) {
        slope_tile(turn).template send<kStepRows>(thread, matrix + out, {map.out, a.wide},
                                                  static_cast<int>(map.out - out), row, end, needed);
      });
      if (a.norm.defined())
        return put_normed</*kAgain=*/true, kStepRows>(thread, a.norm, static_cast<const float*>(map.input.at),
                                                      {map.in, a.wide}, in, row, end, needed, /*keeps=*/false,
                                                      input_tile(turn));
      with_stored<Half>(map.input, [&](const auto* matrix) {
        input_tile(turn).template send<kStepRows>(thread, matrix + in, {map.in, a.wide}, static_cast<int>(map.in - in),
                                                  row, end, needed);
      });
    };
    const int64_t steps = (end - part * part_rows + kStepRows - 1) / kStepRows;
    walk_tiles(thread, steps, send, [&](int64_t number, int turn) {
      const int64_t row = part * part_rows + number * kStepRows;
      if (tile_need<kStepRows>(thread, a.needed, row, end) == TileNeed::kNone) return;
      slope_tile(turn).template by_columns</*kTurned=*/true, kStepRows>(thread, warp_row, input_tile(turn), sum);
      if (sums_bias)
        for (int i = 0; i < kStepRows; ++i) bias += slope_tile(turn).at(i, thread.index());
    });
    float* const table = a.tables + part * a.table + map.start;
    const SharedRows room{reinterpret_cast<float*>(memory), shared_stride(kTileSide)};
    store_tile(thread, sum, nullptr, {out, in, map.out, map.in}, a.wide, room, table);
    if (sums_bias) table[map.out * map.in + out + thread.index()] = bias;
  }

 private:
  [[nodiscard]] XFORMER_DEVICE static Tile tile(char* memory, int place) {
    return Tile(memory + place * (Tile::kBytes / kTileSide * kStepRows));
  }
};

template <class Types, class Launch>
void run_weight_gradients(const WeightGradientArguments& a, const Launch& launch) {
  const LaunchGrid grid = weight_grid(a);
  with_products<Types>(a.product, a.half,
                       [&](auto kind, auto half) { launch(grid, WeightGradientProgram<kind(), decltype(half)>{a}); });
  if (a.parts > 1) run_part_sums({a.tables, a.sums, a.parts, a.table}, launch);
}

}  // namespace xformer::kernels
