// A linear map with its residual and norm (branch.h) as a device program: a block takes 64 rows through all columns of
// the map, whose sums stay in registers. A feed-forward part has a program of its own (feed_forward/program.h).
#pragma once

#include "kernels/linear/program.h"
#include "kernels/residual_norm/epilogue.h"

namespace xformer::kernels {

struct LinearBranchArguments {
  ProductKind product = ProductKind::kFloat;
  ElementType half = ElementType::kFloat;          // as LinearArguments has it
  Stored x;                                        // [rows, in]
  const float *weight = nullptr, *bias = nullptr;  // [out, in], [out] or null
  const bool* needed = nullptr;                    // [rows]; null: all are
  int64_t rows = 0, in = 0, out = 0;
  bool wide = false;  // all begins at sixteen bytes, and all widths are multiples of kRun
  ResidualEpilogue residual;
};

[[nodiscard]] constexpr LaunchGrid linear_branch_grid(int64_t rows) { return {tiles_of(rows), 2 * kTileFloats * 4}; }

// kPacks: tiles of columns.
template <ProductKind kKind, int kPacks, class Half>
struct LinearBranchProgram {
  static constexpr int kThreads = kTileThreads, kResident = kPacks == 1 ? 4 : 2;
  static constexpr int kTiles = kTileSide / kTileColumns;
  using Tile = OperandTile<kKind, Half>;
  LinearBranchArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const memory = static_cast<char*>(thread.shared());
    const Tile rows(memory), weights(memory + Tile::kBytes);
    const int64_t first = thread.block() * kTileSide;
    const bool needed = tile_need<kTileSide>(thread, a.needed, first, a.rows) != TileNeed::kNone;
    const int warp_row = thread.index() / kWarp * kTileRows;
    float sum[kPacks * kTiles][4] = {};
    for (int64_t place = 0; needed && place < a.in; place += kTileSide) {
      const int width = static_cast<int>(a.in - place);
      XFORMER_UNROLL
      for (int pack = 0; pack < kPacks; ++pack) {
        thread.sync();
        if (pack == 0)
          with_stored<Half>(a.x, [&](const auto* matrix) {
            rows.send(thread, matrix + place, {a.in, a.wide}, width, first, a.rows);
          });
        weights.send(thread, a.weight + place, {a.in, a.wide}, width, pack * kTileSide, a.out);
        await_sent(thread);
        thread.sync();
        rows.by_rows(thread, warp_row, weights, sum + pack * kTiles);
      }
    }
    const TilePlace place{first, 0, a.rows, a.out};
    const auto room = [&](int number) {
      return SharedRows{reinterpret_cast<float*>(memory) + number * kTileFloats, shared_stride(kTileSide)};
    };
    if constexpr (kPacks == 1) store_residual<1>(thread, sum, a.bias, a.residual, a.needed, place, a.wide, {room(0)});
    else store_residual<2>(thread, sum, a.bias, a.residual, a.needed, place, a.wide, {room(0), room(1)});
  }
};

// launch(grid, program).
template <class Types, class Launch>
auto run_linear_branch(const LinearBranchArguments& a, const Launch& launch) {
  const LaunchGrid grid = linear_branch_grid(a.rows);
  return with_products<Types>(a.product, a.half, [&](auto kind, auto half) {
    return a.out <= kTileSide ? launch(grid, LinearBranchProgram<kind(), 1, decltype(half)>{a})
                              : launch(grid, LinearBranchProgram<kind(), 2, decltype(half)>{a});
  });
}

}  // namespace xformer::kernels
