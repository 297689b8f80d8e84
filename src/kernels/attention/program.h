// Attention (attention.h) as device programs: a block holds 64 rows of one head in shared memory, its four warps 16 of
// them each, or twice as many (attention_row_tiles), and walks over the tiles of 64 that these rows see (Dao et al.,
// "FlashAttention", 2022; the passes as in FlashAttention-2). Nothing is added by atomics: the backward pass goes once
// over rows of queries, for dq, and once over rows of keys, for dk and dv. Where few rows make few blocks, several
// share what a row sees, and their results are put together afterwards, in order (Dao et al., "Flash-Decoding", 2023).
// Softmax and sums are in float, also of heads in bf16 or fp16: those are operands of TF32 products as they are.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/attention/tile_weights.h"
#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kAttentionTile = kTileSide;
inline constexpr int kAttentionWidest = 64;  // d and e; wider heads are left to plain operations

struct AttentionArguments {
  ElementType type = ElementType::kFloat;  // of heads, outputs and gradients; not double
  ProductKind product = ProductKind::kFloat;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  HeadPlaces q_places, k_places, v_places;
  void* out = nullptr;       // [b,n,h,e]
  float* log_sum = nullptr;  // [b,h,n]; +infinity for rows that see no key or do not count
  // Of several parts of the keys, else null: the same of each part on its own, [parts,b,n,h,e] and [parts,b,h,n].
  float *part_out = nullptr, *part_log_sum = nullptr;
  int64_t b = 0, h = 0, n = 0, m = 0;
  int d = 0, e = 0;
  float scale = 1;
  bool causal = false;
  const bool *key_valid = nullptr, *query_valid = nullptr;  // [b,m], [b,n]; null: all are valid
  DeviceDrop drop;
  int row_tiles = 0;  // attention_row_tiles(), unless told otherwise

  // Of the backward pass alone. The gradients dq, dk, dv are [b,n,h,d], [b,m,h,d], [b,m,h,e].
  const void* gradient = nullptr;
  HeadPlaces gradient_places;
  float* delta = nullptr;  // [b,h,n]: written by the pass over queries, read by that over keys
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  // Of several parts of the keys, or of the queries, in the place of these: parts to be added, each of a dq, or of a dk
  // and behind it a dv.
  float *dq_parts = nullptr, *dk_parts = nullptr;
};

// Places in shared memory for each kind of tile that a block walks over: of narrow heads two, so that the next tiles
// come while these are read; more would leave a multiprocessor of sm_80 with one block of wide ones.
[[nodiscard]] constexpr int tile_places(int width) { return width == 32 ? 2 : 1; }

// Heads of up to 32, or up to 64.
[[nodiscard]] constexpr int attention_width(int64_t d, int64_t e) { return d <= 32 && e <= 32 ? 32 : 64; }

// How what rows see is divided among their blocks: parts of four tiles or more, since each part costs a pass over its
// results. The same on every device.
[[nodiscard]] constexpr RowDivision attention_division(int64_t heads, int64_t rows, int64_t seen) {
  const int64_t tiles = std::max<int64_t>(tiles_of(seen), 1), blocks = std::max<int64_t>(heads * tiles_of(rows), 1);
  const int64_t most = std::clamp<int64_t>(kSpreadBlocks / blocks, 1, std::max<int64_t>(tiles / 4, 1));
  const int64_t part_tiles = (tiles + most - 1) / most;
  return {(tiles + part_tiles - 1) / part_tiles, part_tiles};
}

// Whether a block has 128 of the rows, and its warps 32 each: what these see is then read half as often, which narrow
// heads leave the registers for. Where that makes enough blocks; these see all there is.
[[nodiscard]] constexpr int attention_row_tiles(int64_t heads, int64_t rows, int width) {
  return width == 32 && heads * ((rows + 2 * kTileSide - 1) / (2 * kTileSide)) >= kSpreadBlocks ? 2 : 1;
}

// `tiles`: those of 64 rows in shared memory; `row_tiles` of them are a block's own rows.
[[nodiscard]] constexpr LaunchGrid attention_grid(int64_t b, int64_t h, int64_t rows, int width, int tiles,
                                                  int row_tiles = 1, int64_t parts = 1) {
  const int64_t side = int64_t{kTileSide} * row_tiles, numbers = 2 * side;  // of kept weights, and of queries
  const int64_t floats = int64_t{tiles} * kAttentionTile * shared_stride(width) + 2 * numbers;
  return {b * h * ((rows + side - 1) / side) * parts, (floats + kTileThreads / kWarp) * 4};
}

// What a block has where several share what rows see.
struct SeenPart {
  int number, first, end;  // which part, and from where to where it goes
  int64_t block;           // among those of the same part
  bool alone;

  XFORMER_DEVICE SeenPart(int64_t heads, int64_t rows, int64_t seen, int64_t of) {
    const RowDivision division = attention_division(heads, rows, seen);
    const int64_t blocks = heads * tiles_of(rows), part_rows = division.part_tiles * kAttentionTile;
    number = static_cast<int>(of / blocks), block = of % blocks;
    first = static_cast<int>(number * part_rows);
    end = static_cast<int>(std::min(first + part_rows, seen));
    alone = division.parts == 1;
  }
  // A block that sees all.
  XFORMER_DEVICE SeenPart(int64_t seen, int64_t of)
      : number(0), first(0), end(static_cast<int>(seen)), block(of), alone(true) {}
};

template <int kRowTiles>
[[nodiscard]] XFORMER_DEVICE SeenPart seen_part(int64_t heads, int64_t rows, int64_t seen, int64_t block) {
  if constexpr (kRowTiles == 1) return SeenPart(heads, rows, seen, block);
  return SeenPart(seen, block);
}

// Where the weight of a query and a key is among all [b,h,n,m].
[[nodiscard]] XFORMER_DEVICE int64_t weight_place(const AttentionArguments& a, const HeadBlock& block, int64_t query,
                                                  int64_t key) {
  return ((block.b * a.h + block.h) * a.n + query) * a.m + key;
}

// Which weights of a tile count in the warp's rows g and g + 8 of each sixteen, of queries or, with kKeys, of keys.
// `first`: the number of the tile's first column, `row` of the warp's first row; valid and `end` are the keys'. Columns
// behind the last query seem to count here: their sum of weights is infinite, so that none of them weighs anything.
template <bool kKeys, int kRowTiles>
struct WarpSeen {
  RowBits rows[2 * kRowTiles];
  bool whole;  // all do, in all lanes

  template <class Thread>
  XFORMER_DEVICE WarpSeen(const Thread& thread, const FragmentPlace& place, bool causal, const bool* valid,
                          int64_t first, int64_t end, int64_t row) {
    constexpr uint64_t kAll = ~uint64_t{0};
    constexpr int kRows = kRowTiles * kTileRows;
    const uint64_t keys = kKeys ? kAll : seen_keys(thread, valid, first, end);
    // A query sees itself and what comes before.
    whole = kKeys ? valid == nullptr && row + kRows <= end && !(causal && first < row + kRows - 1)
                  : keys == kAll && !(causal && first + kTileSide - 1 > row);
    if (whole) return;
    XFORMER_UNROLL
    for (int half = 0; half < 2 * kRowTiles; ++half) {
      const int64_t own = row + place.row + 8 * half;
      uint64_t columns = keys;
      if constexpr (kKeys) {
        if (own >= end || (valid != nullptr && !valid[own])) columns = 0;
        if (causal) columns &= ~columns_before(own - first);
      } else if (causal) {
        columns &= columns_before(own + 1 - first);
      }
      rows[half] = {place, columns};
    }
  }
};

// kRowTiles: attention_row_tiles().
template <class Value, ProductKind kKind, int kWidth, int kRowTiles>
struct AttentionForwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 && kRowTiles == 1 ? 3 : 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kPlaces = tile_places(kWidth), kTileCount = kRowTiles + 2 * kPlaces;
  static constexpr int kSide = kRowTiles * kTileSide, kHalves = 2 * kRowTiles;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kTileFloats = kAttentionTile * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows q{memory, kStride};
    const auto key_tile = [&](int turn) { return SharedRows{memory + (kRowTiles + turn) * kTileFloats, kStride}; };
    const auto value_tile = [&](int turn) {
      return SharedRows{memory + (kRowTiles + kPlaces + turn) * kTileFloats, kStride};
    };
    float* const bits = memory + kTileCount * kTileFloats;
    auto* const ends = reinterpret_cast<int*>(bits + TileKept<false, kRowTiles>::kFloats);
    const SeenPart part = seen_part<kRowTiles>(a.b * a.h, a.n, a.m, thread.block());
    const HeadBlock block = head_block(a.h, part.block, a.n, kSide);
    const bool* key_valid = a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    const bool* query_valid = a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
    int end = std::min(static_cast<int>(trimmed_end(thread, key_valid, a.m, ends)), part.end);
    const int64_t query_end = trimmed_end(thread, query_valid, a.n, ends);
    if (block.first >= query_end) end = 0;
    if (a.causal && end > block.first + kSide) end = static_cast<int>(block.first) + kSide;
    const auto* const keys = at_head<Value>(a.k, a.k_places, block);
    const auto* const values = at_head<Value>(a.v, a.v_places, block);
    load_tile<kWidth, kSide>(thread, at_head<Value>(a.q, a.q_places, block), a.q_places, a.d, block.first, query_end,
                             query_valid, q);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kRowTiles * kTileRows;
    const TileKept<false, kRowTiles> drops(a.drop, a.m, bits);
    const int64_t weights = weight_place(a, block, block.first, 0);
    WeightRows<kOutTiles, kRowTiles> rows;
    const auto send = [&](int key, int turn) {
      if (key < end) {
        send_tile<kWidth>(thread, keys, a.k_places, a.d, key, end, key_valid, key_tile(turn));
        send_tile<kWidth>(thread, values, a.v_places, a.e, key, end, key_valid, value_tile(turn));
      }
      thread.end_copies();
    };
    if constexpr (kPlaces == 2) send(part.first, 0);
    int turn = 0;
    for (int key = part.first; key < end; key += kAttentionTile, turn = kPlaces - 1 - turn) {
      thread.sync();
      send(key + (kPlaces - 1) * kAttentionTile, kPlaces - 1 - turn);
      drops.draw(thread, weights + key);
      thread.template await_copies<kPlaces - 1>();
      thread.sync();
      const SharedRows k = key_tile(turn), v = value_tile(turn);
      float score[kRowTiles * kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles, kRowTiles>(thread, q, warp_row, k, score);
      const WarpSeen<false, kRowTiles> seen(thread, place, a.causal, key_valid, key, end, block.first + warp_row);
      RowBits kept[kHalves];
      XFORMER_UNROLL
      for (int half = 0; half < kHalves; ++half) kept[half] = drops.row(place, warp_row + place.row + 8 * half);
      rows.template weigh<kTiles>(thread, a.scale * kLog2E, seen.whole, seen.rows, kept, score);
      multiply_weights<kKind, kTiles, kOutTiles, kRowTiles>(thread, score, v, rows.out);
    }
    float inverse[kHalves];
    float* const log_sum = part.alone ? a.log_sum : a.part_log_sum + part.number * a.b * a.h * a.n;
    XFORMER_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      const auto total = rows.total(thread, half);
      const int64_t own = block.first + warp_row + place.row + 8 * half;
      const bool counts = own < query_end && (query_valid == nullptr || query_valid[own]);
      inverse[half] = counts ? total.inverse * drops.scale() : 0.0f;
      if (own < a.n && place.pair == 0)
        log_sum[(block.b * a.h + block.h) * a.n + own] = counts ? total.log_sum : static_cast<float>(INFINITY);
    }
    const auto store = [&](auto* out) {
      XFORMER_UNROLL
      for (int r = 0; r < kRowTiles; ++r)
        store_fragment<kOutTiles>(thread, rows.out + r * kOutTiles, inverse[2 * r], inverse[2 * r + 1],
                                  out + (block.b * a.n * a.h + block.h) * a.e, a.h * a.e, a.e,
                                  block.first + warp_row + r * kTileRows, a.n);
    };
    part.alone ? store(static_cast<Value*>(a.out)) : store(a.part_out + part.number * a.b * a.n * a.h * a.e);
  }
};

// One attention over all keys from those over parts of them: a few lanes of a warp have a row.
template <class Value>
struct AttentionJoinProgram {
  static constexpr int kThreads = 256, kResident = 4;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr float kNone = INFINITY;
    const int lanes = row_lanes(a.e), lane = thread.index() % lanes;
    const int64_t row = thread.block() * (kThreads / lanes) + thread.index() / lanes, rows = a.b * a.n * a.h;
    if (row >= rows) return;
    const int64_t place = (row / a.h / a.n * a.h + row % a.h) * a.n + row / a.h % a.n;
    const int64_t parts = attention_division(a.b * a.h, a.n, a.m).parts;
    const auto log_of = [&](int64_t part) { return a.part_log_sum[part * rows + place]; };
    float largest = -kNone, sum = 0;
    for (int64_t part = 0; part < parts; ++part)
      if (log_of(part) != kNone && log_of(part) > largest) largest = log_of(part);
    const auto share = [&](int64_t part) { return log_of(part) == kNone ? 0.0f : thread.exp(log_of(part) - largest); };
    for (int64_t part = 0; part < parts; ++part) sum += share(part);
    const float inverse = sum == 0 ? 0.0f : 1 / sum;
    if (lane == 0) a.log_sum[place] = sum == 0 ? kNone : largest + std::log(sum);
    const bool wide = a.e % kRun == 0;
    for (int column = lane * kRun; column < a.e; column += lanes * kRun) {
      const int width = run_length(a.e - column);
      float out[kRun] = {}, more[kRun];
      for (int64_t part = 0; part < parts; ++part) {
        load_run(thread, a.part_out + (part * rows + row) * a.e + column, width, wide, more);
        XFORMER_UNROLL
        for (int i = 0; i < kRun; ++i) out[i] += share(part) * inverse * more[i];
      }
      store_run(thread, out, width, wide, static_cast<Value*>(a.out) + row * a.e + column);
    }
  }
};

}  // namespace xformer::kernels
