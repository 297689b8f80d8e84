// The causal form of feature attention as device programs: 64 rows of queries, or keys, with the table of all keys
// before them, or queries behind, and with the 64 of the other side beside them by masked products of features. Each
// pass writes and reads once a table of f (e + 1) numbers for every 64 rows; the forward pass's are kept for the
// backward pass. Beside that, and without repeats for more than 64 features, forwards k and v are read once more than
// in the full form, backwards q, k, v and the gradient.
//
// kSoftmax (causal.h): features of keys are relative to the c of their own row and without the floor, so the product of
// two features is times exp(c_j - c_i) <= 1, and the floor times the sum of the query's features is added.
#pragma once

#include "kernels/feature_attention/table_programs.h"

namespace xformer::kernels {

// Features at a time: of more, with 64 by 64 products of rows beside them, registers have no room.
inline constexpr int kCausalFeatures = 32;
inline constexpr int kCausalFeatureFloats = kTileSide * shared_stride(kCausalFeatures);  // for 64 rows

// A block for each 64 rows of every head. Tiles of both sides' rows and of the omega and S of some features, backwards
// of values and of products of rows as well.
[[nodiscard]] constexpr LaunchGrid causal_grid(int64_t heads, int64_t rows, int width, bool backward) {
  return {heads * tiles_of(rows),
          feature_bytes(width, backward ? 4 : 3) + int64_t{kCausalFeatureFloats + (backward ? kTileFloats : 0)} * 4};
}

// What comes before each part of the sums over keys, in place of the part's own; with kQueries, what comes behind. A
// thread for each number of a table.
template <bool kQueries>
struct FeatureScanProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t size = a.table_size(), blocks = (size + kThreads - 1) / kThreads, head = thread.block() / blocks;
    const int64_t place = thread.block() % blocks * kThreads + thread.index();
    if (place >= size) return;
    const RowDivision division = feature_division(a.heads(), a.q.rows, a.f);
    const bool scaled = a.apart() && place < a.apart_at();
    float sum = 0;
    for (int64_t i = 0; i < division.parts; ++i) {
      const int64_t part = kQueries ? division.parts - 1 - i : i, rows = division.part_tiles * kTileSide;
      float* const own = a.parts + (head * division.parts + part) * size + place;
      const float one = *own;
      *own = sum;
      float scale = 1;
      if (scaled && part > 0) {
        const float before = border(a, head, part * rows - 1), last = border(a, head, (part + 1) * rows - 1);
        scale = decay(thread, before, last);
      }
      sum = sum * scale + one;
    }
  }
};
[[nodiscard]] constexpr LaunchGrid feature_scan_grid(int64_t heads, int64_t table_size) {
  return {heads * ((table_size + kTileThreads - 1) / kTileThreads), 0};
}

// The table of all keys before 64 rows, or with kQueries of all queries behind them, from its two parts.
template <bool kQueries>
struct CausalTables {
  const float *chunk = nullptr, *part = nullptr;  // null: nothing
  float scale = 1;                                // of the second

  template <class Thread>
  XFORMER_DEVICE CausalTables(const Thread& thread, const FeatureArguments& a, int64_t head, int64_t tile) {
    const int64_t tiles = tiles_of(a.q.rows);
    const RowDivision division = feature_division(a.heads(), a.q.rows, a.f);
    const int64_t own = tile / division.part_tiles, first = own * division.part_tiles;
    const int64_t last = first + division.part_tiles < tiles ? first + division.part_tiles - 1 : tiles - 1;
    if (tile != (kQueries ? last : first)) chunk = a.chunks + (head * tiles + tile) * a.table_size();
    if (own == (kQueries ? division.parts - 1 : 0)) return;
    part = a.parts + (head * division.parts + own) * a.table_size();
    if (!a.apart()) return;
    const int64_t row = tile * kTileSide;
    scale = kQueries ? decay(thread, border(a, head, row + kTileSide - 1), border(a, head, (last + 1) * kTileSide - 1))
                     : decay(thread, border(a, head, first * kTileSide - 1), border(a, head, row - 1));
  }

  // One number; those that are summed apart go with no scale.
  [[nodiscard]] XFORMER_DEVICE float at(int64_t place, float factor) const {
    return (chunk == nullptr ? 0.0f : chunk[place]) + (part == nullptr ? 0.0f : factor * part[place]);
  }

  // kCausalFeatures rows of S from `feature` on, and those of z.
  template <int kWidth, class Thread>
  XFORMER_DEVICE void load(const Thread& thread, const FeatureArguments& a, int feature, const SharedRows& into,
                           float* sums) const {
    constexpr int kRuns = kWidth / kRun;
    XFORMER_UNROLL_TWICE
    for (int i = 0; i < kCausalFeatures * kRuns / kTileThreads; ++i) {
      const int place = i * kTileThreads + thread.index(), row = place / kRuns, column = place % kRuns * kRun;
      const int left = feature + row < a.f ? run_length(a.e - column) : 0;
      const int64_t from = int64_t{feature + row} * a.e + column;
      float values[kRun], more[kRun];
      load_run(thread, chunk == nullptr ? nullptr : chunk + from, chunk == nullptr ? 0 : left, a.wide_table, values);
      load_run(thread, part == nullptr ? nullptr : part + from, part == nullptr ? 0 : left, a.wide_table, more);
      XFORMER_UNROLL
      for (int j = 0; j < kRun; ++j) values[j] += scale * more[j];
      put_run(thread, values, into.at(row, column));
    }
    if (thread.index() < kCausalFeatures)
      sums[thread.index()] = feature + thread.index() < a.f ? at(a.z_at() + feature + thread.index(), scale) : 0.0f;
  }

  // The e + 1 numbers that are summed apart.
  template <class Thread>
  XFORMER_DEVICE void load_apart(const Thread& thread, const FeatureArguments& a, float* into) const {
    if (a.apart() && thread.index() <= a.e) into[thread.index()] = at(a.apart_at() + thread.index(), 1.0f);
  }
};

// Numbers of 64 queries or keys in shared memory: what exponents lose, c, and 1 for those that count.
struct CausalNumbers {
  float *shift, *c, *counts;

  template <class Thread>
  XFORMER_DEVICE void load(const Thread& thread, const FeatureArguments& a, const FeatureRows& side, int64_t head,
                           int64_t first) const {
    const int i = thread.index();
    if (i >= kTileSide) return;
    const int64_t row = first + i;
    const bool there = row < side.rows && (side.valid == nullptr || side.valid[head / a.h * side.rows + row]);
    counts[i] = there ? 1.0f : 0.0f;
    shift[i] = there && side.shift != nullptr ? side.shift[head * side.rows + row] : 0.0f;
    c[i] = a.apart() ? border(a, head, row) : 0.0f;
  }
};

// Features of 64 rows x, 16 of a warp, into a tile: rows by features, 0 behind the last feature.
template <ProductKind kKind, int kWidth, class Thread>
XFORMER_DEVICE void put_features(const Thread& thread, const FeatureArguments& a, int first, const SharedRows& x,
                                 const SharedRows& omega, const float* shift, float floor, const SharedRows& into) {
  constexpr int kTiles = kCausalFeatures / kTileColumns;
  const FragmentPlace place(thread);
  const int warp_row = thread.index() / kWarp * kTileRows;
  float phi[kTiles][4] = {};
  feature_scores<kKind, kWidth, /*kTurned=*/false>(thread, a, first, x, omega, phi);
  XFORMER_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int column = j * kTileColumns + 2 * place.pair + i % 2, row = warp_row + place.row + (i >= 2 ? 8 : 0);
      const float value = DeviceFeature(thread, a.map, phi[j][i], shift[row]).value + floor;
      *into.at(row, column) = first + column < a.f ? value : 0.0f;
    }
  }
}

// The output of 64 queries.
template <class Value, ProductKind kKind, int kWidth>
struct CausalAnswerProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kFeatureTiles = kCausalFeatures / kTileColumns;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kTileSide * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows peaks{memory, shared_stride(kCausalFeatures)}, x{memory + kCausalFeatureFloats, kStride};
    const SharedRows keys{x.values + kFloats, kStride}, omega{x.values + 2 * kFloats, kStride};
    const SharedRows table{omega.values + kCausalFeatures * kStride, kStride};
    float *const sums = x.values + 3 * kFloats, *const apart = sums + kTileSide;  // e + 1 of the latter
    const CausalNumbers key{apart + 2 * kTileSide, apart + 3 * kTileSide, apart + 4 * kTileSide};
    auto* const ends = reinterpret_cast<int*>(apart + 5 * kTileSide);
    const HeadBlock block = head_block(a.h, thread.block(), a.q.rows);
    const int64_t head = block.b * a.h + block.h, n = a.q.rows, row_at = head * n;
    const bool* const valid = a.q.valid == nullptr ? nullptr : a.q.valid + block.b * n;
    const bool* const key_valid = a.k.valid == nullptr ? nullptr : a.k.valid + block.b * n;
    const int64_t end = valid_end(thread, valid, n, ends);
    send_block<Value, kWidth>(thread, a.q.x, a.q.places, a.d, block, end, valid, x);
    send_block<Value, kWidth>(thread, a.k.x, a.k.places, a.d, block, n, key_valid, keys);
    key.load(thread, a, a.k, head, block.first);
    const CausalTables<false> before(thread, a, head, block.first / kTileSide);
    before.load_apart(thread, a, apart);
    await_sent(thread);
    thread.sync();  // blocks behind the last valid query read these, too, and wait for nothing before it
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    float shift[2] = {0, 0}, total[2] = {0, 0}, by_table[2] = {0, 0};
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t row = block.first + warp_row + place.row + 8 * half;
      if (row < n && a.q.shift != nullptr) shift[half] = a.q.shift[row_at + row];
    }
    float weight[kTiles][4] = {}, out[kOutTiles][4] = {};
    for (int first = 0; first < (block.first < end ? a.f : 0); first += kCausalFeatures) {
      thread.sync();
      send_omega<kWidth, kCausalFeatures>(thread, a, first, omega);
      before.template load<kWidth>(thread, a, first, table, sums);
      await_sent(thread);
      thread.sync();
      put_features<kKind, kWidth>(thread, a, first, keys, omega, key.shift, a.apart() ? 0.0f : a.floor, peaks);
      float phi[kFeatureTiles][4] = {};
      feature_scores<kKind, kWidth, /*kTurned=*/false>(thread, a, first, x, omega, phi);
      XFORMER_UNROLL
      for (int j = 0; j < kFeatureTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i % 2;
          phi[j][i] = DeviceFeature(thread, a.map, phi[j][i], shift[i / 2]).value + a.floor;
          if (first + column < a.f) total[i / 2] += phi[j][i];
          by_table[i / 2] += phi[j][i] * sums[column];
        }
      }
      multiply_weights<kKind, kFeatureTiles, kOutTiles>(thread, phi, table, out);
      thread.sync();
      multiply_weights_turned<kKind, kFeatureTiles, kTiles>(thread, phi, peaks, weight);
    }
    float inverse[2];
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = warp_row + place.row + 8 * half;
      const int64_t row = block.first + own;
      float c = 0, scale = 1;
      if (a.apart()) c = border(a, head, row);
      if (a.apart() && block.first > 0) scale = decay(thread, border(a, head, block.first - 1), c);
      const float all = lane_sum(thread, total[half], 1, 4), floor = a.apart() ? a.floor * all : 0.0f;
      float sum = lane_sum(thread, by_table[half], 1, 4) * scale, within = 0;
      if (a.apart()) sum += floor * apart[a.e];
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i % 2;
          const bool seen = column <= own && key.counts[column] > 0;
          const float factor = a.apart() && seen ? thread.exp(key.c[column] - c) : 1.0f;
          weight[j][i] = seen ? weight[j][i] * factor + floor : 0.0f;
          within += weight[j][i];
        }
      }
      sum += lane_sum(thread, within, 1, 4) + a.epsilon;
      XFORMER_UNROLL
      for (int j = 0; j < kOutTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i % 2;
          out[j][i] = out[j][i] * scale + (a.apart() && column < a.e ? floor * apart[column] : 0.0f);
        }
      }
      const bool counts = row < end && (valid == nullptr || valid[row]);
      inverse[half] = !counts ? 0.0f : a.divisor > 0 ? 1 / a.divisor : sum == 0 ? 1.0f : 1 / sum;
      if (row >= n || place.pair != 0) continue;
      a.inverse[row_at + row] = inverse[half];
      if (a.apart()) a.totals[row_at + row] = all;
    }
    thread.sync();
    send_block<Value, kWidth>(thread, a.v, a.v_places, a.e, block, n, key_valid, keys);
    await_sent(thread);
    thread.sync();
    multiply_weights<kKind, kTiles, kOutTiles>(thread, weight, keys, out);
    store_fragment<kOutTiles>(thread, out, inverse[0], inverse[1],
                              static_cast<Value*>(a.out) + (block.b * n * a.h + block.h) * a.e, a.h * a.e, a.e,
                              block.first + warp_row, n);
  }
};

}  // namespace xformer::kernels
