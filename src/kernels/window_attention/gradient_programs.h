// The backward pass of attention over windows on a device: a launch over rows of queries, for dq, and one over rows of
// keys, for dk and dv. Extra keys belong to many rows: for them the second launch has blocks of its own, first in its
// grid, which leave a sum for each part of the rows, and a third launch adds these up in the order of the parts.
#pragma once

#include "kernels/window_attention/program.h"

namespace xformer::kernels {

// dq of 64 rows, and delta, the sum of out and its gradient, less that of the log-sum.
template <class Value, ProductKind kKind, int kWidth>
struct WindowAttentionQueryProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2, kShared = 4;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  WindowArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const WindowMemory<kWidth, kShared> memory(thread);
    const SharedRows q = memory.rows(0), gradient = memory.rows(1), k = memory.rows(2), v = memory.rows(3);
    WindowTile& tile = memory.tile();
    const WindowBlock<Value> block{a, tile};
    const int row_tiles = a.pattern.row_tiles();
    const WindowRows rows = a.pattern.row_tile(static_cast<int>(thread.block() % row_tiles));
    block.begin(thread, thread.block() / row_tiles, memory.ends());
    block.set_queries(thread, rows, /*backward=*/true);
    thread.sync();
    block.template load<kWidth>(thread, 0, tile.query, q);
    block.template load<kWidth>(thread, 1, tile.query, gradient);
    thread.sync();
    if (thread.index() < kTileSide) {
      const int64_t query = tile.query[thread.index()];
      float total = 0;
      if (query >= 0) {
        const auto* const out =
            static_cast<const Value*>(a.out) + ((int64_t{tile.b} * a.pattern.n + query) * a.h + tile.h) * a.e;
        for (int c = 0; c < a.e; ++c) total += static_cast<float>(out[c]) * *gradient.at(thread.index(), c);
        if (a.log_sum_gradient != nullptr) total -= a.log_sum_gradient[block.statistics() + query];
        a.delta[block.statistics() + query] = total;
      }
      tile.delta[thread.index()] = total;
    }
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, memory.draws());
    float sum[kOutTiles][4] = {};
    for_window_keys<kWidth>(thread, block, rows, k, v, draws, [&] {
      float weight[kTiles][4] = {}, slope[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, k, weight);
      multiply_rows<kKind, kWidth, kTiles>(thread, gradient, warp_row, v, slope);
      const auto gained = [&](int query, int key) { return tile.gained(query, key); };
      softmax_gradient<false, kTiles>(thread, a.scale, draws, warp_row, gained, tile.log_sum, tile.delta, weight,
                                      slope);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, k, sum);
    });
    block.template store<kOutTiles>(thread, sum, 1.0f, 1.0f, rows, warp_row, a.d, a.dq);
  }
};

// Blocks for extra keys, of the launch over keys.
[[nodiscard]] constexpr int64_t window_extra_blocks(const WindowArguments& a) {
  return a.b * a.h * a.parts * tiles_of(a.g);
}
[[nodiscard]] constexpr LaunchGrid window_keys_grid(const WindowArguments& a, int width) {
  const int64_t near = a.b * a.h * a.pattern.dilation * tiles_of(a.pattern.tokens(0, a.pattern.n));
  return window_grid(window_extra_blocks(a) + near, width, 4);
}

// dk and dv of 64 tokens of a residue, from all rows that see one of them, or of 64 extra keys, from one part of the
// rows.
template <class Value, ProductKind kKind, int kWidth>
struct WindowAttentionKeyProgram {
  static constexpr int kThreads = kTileThreads, kShared = 4;
  static constexpr int kResident = kWidth == 32 && std::is_same_v<Value, float> ? 3 : 2;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  WindowArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const WindowMemory<kWidth, kShared> memory(thread);
    const SharedRows k = memory.rows(0), v = memory.rows(1), q = memory.rows(2), gradient = memory.rows(3);
    WindowTile& tile = memory.tile();
    const WindowBlock<Value> block{a, tile};
    const WindowPattern& pattern = a.pattern;
    const int64_t extra_blocks = window_extra_blocks(a);
    const bool extra = thread.block() < extra_blocks;
    const int64_t number = extra ? thread.block() : thread.block() - extra_blocks;
    // Heads are divided into parts of rows or residues, and these into tiles of keys.
    const int64_t key_tiles = tiles_of(extra ? a.g : pattern.tokens(0, pattern.n));
    const int64_t divisions = extra ? a.parts : pattern.dilation;
    const auto part = static_cast<int>(number / key_tiles % divisions);
    const WindowKeys keys{static_cast<int>(number % key_tiles) * kTileSide, extra};
    block.begin(thread, number / key_tiles / divisions, memory.ends());
    block.set_keys(thread, keys, part);
    if (thread.index() == 0) {
      tile.keys = keys, tile.part = part;
      // Tiles of the part's rows, or from the first row on that sees one of the keys.
      if (extra) {
        const int first = part * a.part_tiles, last = pattern.row_tiles();
        tile.tiles = {first, first + a.part_tiles < last ? first + a.part_tiles : last};
      } else {
        tile.tiles = {0, static_cast<int>(tiles_of(near(tile).to - near(tile).from))};
      }
    }
    thread.sync();
    block.template load<kWidth>(thread, 0, tile.key, k);
    block.template load<kWidth>(thread, 1, tile.key, v);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, memory.draws());
    float sum[kOutTiles][4] = {}, value_sum[kOutTiles][4] = {};
    for (int i = tile.tiles.from; i < tile.tiles.to; ++i) {
      thread.sync();
      if (thread.index() < kTileSide) {
        const WindowRows rows = rows_of(tile, i);
        block.set_queries(thread, rows, /*backward=*/true);
        block.set_seen(thread, rows, tile.keys);
        const int query = tile.query[thread.index()];
        tile.delta[thread.index()] = query < 0 ? 0.0f : a.delta[block.statistics() + query];
      }
      thread.sync();
      block.template load<kWidth>(thread, 0, tile.query, q);
      block.template load<kWidth>(thread, 1, tile.query, gradient);
      block.draw(thread, draws);
      thread.sync();
      float weight[kTiles][4] = {}, slope[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, k, warp_row, q, weight);
      multiply_rows<kKind, kWidth, kTiles>(thread, v, warp_row, gradient, slope);
      const auto gained = [&](int query, int key) { return tile.gained(query, key); };
      softmax_gradient<true, kTiles>(thread, a.scale, draws, warp_row, gained, tile.log_sum, tile.delta, weight, slope);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, q, sum);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, weight, gradient, value_sum);
    }
    const int first = tile.keys.first;
    if (tile.keys.extra) {
      float* const sums = a.extra_sums + (int64_t{tile.head} * a.parts + tile.part) * a.g * 2 * kWidth;
      store_fragment<kOutTiles>(thread, sum, 1.0f, 1.0f, sums, 2 * kWidth, kWidth, first + warp_row, a.g);
      store_fragment<kOutTiles>(thread, value_sum, 1.0f, 1.0f, sums + kWidth, 2 * kWidth, kWidth, first + warp_row,
                                a.g);
    } else {
      const WindowRows own{{first, pattern.tokens(tile.part, pattern.n)}, tile.part, 0};
      block.template store<kOutTiles>(thread, sum, 1.0f, 1.0f, own, warp_row, a.d, a.dk);
      block.template store<kOutTiles>(thread, value_sum, 1.0f, 1.0f, own, warp_row, a.e, a.dv);
    }
  }

 private:
  // Rows that see one of the block's keys, and those of tile `i`.
  [[nodiscard]] XFORMER_DEVICE Span near(const WindowTile& tile) const {
    return a.pattern.seeing(tile.keys.first, a.pattern.tokens(tile.part, tile.tokens));
  }
  [[nodiscard]] XFORMER_DEVICE WindowRows rows_of(const WindowTile& tile, int i) const {
    if (tile.keys.extra) return a.pattern.row_tile(i);
    const Span rows = near(tile);
    return {{rows.from + i * kTileSide, rows.to}, tile.part, 0};
  }
};

// The sums of all parts for 64 extra keys, in the order of the parts.
template <class Value, int kWidth>
struct WindowAttentionExtraProgram {
  static constexpr int kThreads = kTileThreads, kResident = 4;
  // So many threads have a run each of a key's numbers; a group of them has the keys that are alike modulo kGroups.
  static constexpr int kNumbers = 2 * kWidth, kLanes = kNumbers / kRun, kGroups = kThreads / kLanes;
  static constexpr int kTurn = 16, kListed = kTurn * kThreads;  // places that a thread, and the block, looks at in turn
  WindowArguments a;

  [[nodiscard]] static constexpr LaunchGrid grid(const WindowArguments& a) {
    return {a.b * a.h * tiles_of(a.m), (kTileSide * kNumbers + kThreads + kListed) * 4};
  }

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const sums = static_cast<float*>(thread.shared());
    auto* const counts = reinterpret_cast<int*>(sums + kTileSide * kNumbers);
    int* const listed = counts + kThreads;
    const int64_t key_tiles = tiles_of(a.m), number = thread.block() / key_tiles;
    const int64_t b = number / a.h, h = number % a.h, first = thread.block() % key_tiles * kTileSide;
    const int index = thread.index(), group = index / kLanes, column = index % kLanes * kRun;
    const float* const parts = a.extra_sums + number * a.parts * a.g * kNumbers + column;
    // This thread alone comes to what it has of `sums`.
    const auto own = [&](int row) { return sums + row * kNumbers + column; };
    const auto add = [&](int row, int64_t from) {
      float total[kRun], more[kRun];
      load_run(thread, own(row), kRun, /*wide=*/true, total);
      load_run(thread, parts + from * kNumbers, kRun, /*wide=*/true, more);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) total[i] += more[i];
      put_run(thread, total, own(row));
    };
    const float zeros[kRun] = {};
    for (int row = group; row < kTileSide; row += kGroups) put_run(thread, zeros, own(row));
    if (a.places == nullptr) {
      for (int row = group; row < kTileSide && first + row < a.g; row += kGroups)
        for (int64_t part = 0; part < a.parts; ++part) add(row, part * a.g + first + row);
    } else {
      const int64_t* const places = a.places + h * a.places_head;
      for (int64_t begin = 0; begin < a.parts * a.g; begin += kListed) {
        // What of these places is one of the keys here, in order.
        const int64_t mine = begin + index * kTurn, left = a.parts * a.g - mine;
        const int turn = left < 0 ? 0 : left < kTurn ? static_cast<int>(left) : kTurn;
        const auto row_of = [&](int i) {
          const int64_t row = places[mine + i] - first;
          return row >= 0 && row < kTileSide ? static_cast<int>(row) : -1;
        };
        int count = 0;
        for (int i = 0; i < turn; ++i) count += row_of(i) >= 0 ? 1 : 0;
        thread.sync();
        counts[index] = count;
        thread.sync();
        int at = 0, all = 0;
        for (int i = 0; i < kThreads; ++i) {
          if (i == index) at = all;
          all += counts[i];
        }
        for (int i = 0; i < turn; ++i)
          if (const int row = row_of(i); row >= 0) listed[at++] = row * kListed + index * kTurn + i;
        thread.sync();
        for (int i = 0; i < all; ++i)
          if (const int row = listed[i] / kListed; row % kGroups == group) add(row, begin + listed[i] % kListed);
      }
    }
    for (int row = group; row < kTileSide && first + row < a.m; row += kGroups) {
      const bool value = column >= kWidth;
      const int width = value ? a.e : a.d, from = value ? column - kWidth : column, left = width - from;
      float total[kRun];
      load_run(thread, own(row), kRun, /*wide=*/true, total);
      store_run(
          thread, total, run_length(left), width % kRun == 0,
          static_cast<Value*>(value ? a.extra_dv : a.extra_dk) + ((b * a.m + first + row) * a.h + h) * width + from);
    }
  }
};

// launch(grid, program) for the forward pass, then likewise for the parts of the backward pass, one behind the other.
template <class Value, ProductKind kKind, int kWidth, class Launch>
void run_window_attention(const WindowArguments& a, bool backward, const Launch& launch) {
  if (!backward) return launch(window_rows_grid(a, kWidth, 3), WindowAttentionForwardProgram<Value, kKind, kWidth>{a});
  launch(window_rows_grid(a, kWidth, 4), WindowAttentionQueryProgram<Value, kKind, kWidth>{a});
  launch(window_keys_grid(a, kWidth), WindowAttentionKeyProgram<Value, kKind, kWidth>{a});
  using Extra = WindowAttentionExtraProgram<Value, kWidth>;
  if (a.m > 0) launch(Extra::grid(a), Extra{a});
}

// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_window_attention(const WindowArguments& a, bool backward, const Launch& launch) {
  with_heads<Types>(a.type, a.product,
                    [&]<class Value, ProductKind kKind>(Value, std::integral_constant<ProductKind, kKind>) {
                      window_width(a.d, a.e) > 32 ? run_window_attention<Value, kKind, 64>(a, backward, launch)
                                                  : run_window_attention<Value, kKind, 32>(a, backward, launch);
                    });
}

}  // namespace xformer::kernels
