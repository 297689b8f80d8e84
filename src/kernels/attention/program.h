// Attention (attention.h) as device programs: a block holds 64 rows of one head in shared memory, its four warps 16 of
// them each, and walks over the tiles of 64 that these rows see (Dao et al., "FlashAttention", 2022; the passes as in
// FlashAttention-2). Nothing is added by atomics: the backward pass goes once over rows of queries, for dq, and once
// over rows of keys, for dk and dv. Where few rows make few blocks, several share what a row sees, and their results
// are put together afterwards, in order (Dao et al., "Flash-Decoding", 2023). Softmax and sums are in float, also of
// heads in bf16 or fp16: those are operands of TF32 products as they are.
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

// `tiles`: those kept in shared memory.
[[nodiscard]] constexpr LaunchGrid attention_grid(int64_t b, int64_t h, int64_t rows, int width, int tiles,
                                                  int64_t parts = 1) {
  const int64_t floats = int64_t{tiles} * kAttentionTile * shared_stride(width) + TileKept<false>::kFloats;
  return {b * h * tiles_of(rows) * parts, (floats + 2 * kAttentionTile + kTileThreads / kWarp) * 4};
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
};

// Where the weight of a query and a key is among all [b,h,n,m].
[[nodiscard]] XFORMER_DEVICE int64_t weight_place(const AttentionArguments& a, const HeadBlock& block, int64_t query,
                                                  int64_t key) {
  return ((block.b * a.h + block.h) * a.n + query) * a.m + key;
}

// Which weights of a tile count in the warp's rows g and g + 8, of queries or, with kKeys, of keys. `first`: the number
// of the tile's first column, `row` of the warp's first row; valid and `end` are the keys'. Columns behind the last
// query count here, and not by their infinite sum of weights.
template <bool kKeys>
struct WarpSeen {
  RowBits rows[2];
  bool whole;  // all do, in all lanes

  template <class Thread>
  XFORMER_DEVICE WarpSeen(const Thread& thread, const FragmentPlace& place, bool causal, const bool* valid,
                          int64_t first, int64_t end, int64_t row) {
    constexpr uint64_t kAll = ~uint64_t{0};
    const uint64_t keys = kKeys ? kAll : seen_keys(thread, valid, first, end);
    // A query sees itself and what comes before.
    whole = kKeys ? valid == nullptr && row + kTileRows <= end && !(causal && first < row + kTileRows - 1)
                  : keys == kAll && !(causal && first + kTileSide - 1 > row);
    if (whole) return;
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
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

template <class Value, ProductKind kKind, int kWidth>
struct AttentionForwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kPlaces = tile_places(kWidth), kTileCount = 1 + 2 * kPlaces;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kTileFloats = kAttentionTile * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows q{memory, kStride};
    const auto key_tile = [&](int turn) { return SharedRows{memory + (1 + turn) * kTileFloats, kStride}; };
    const auto value_tile = [&](int turn) { return SharedRows{memory + (1 + kPlaces + turn) * kTileFloats, kStride}; };
    float* const bits = memory + kTileCount * kTileFloats;
    auto* const ends = reinterpret_cast<int*>(bits + TileKept<false>::kFloats);
    const SeenPart part(a.b * a.h, a.n, a.m, thread.block());
    const HeadBlock block = head_block(a.h, part.block, a.n);
    const bool* key_valid = a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    const bool* query_valid = a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
    int end = std::min(static_cast<int>(trimmed_end(thread, key_valid, a.m, ends)), part.end);
    const int64_t query_end = trimmed_end(thread, query_valid, a.n, ends);
    if (block.first >= query_end) end = 0;
    if (a.causal && end > block.first + kAttentionTile) end = static_cast<int>(block.first) + kAttentionTile;
    const auto* const keys = at_head<Value>(a.k, a.k_places, block);
    const auto* const values = at_head<Value>(a.v, a.v_places, block);
    load_tile<kWidth>(thread, at_head<Value>(a.q, a.q_places, block), a.q_places, a.d, block.first, query_end,
                      query_valid, q);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileKept<false> drops(a.drop, a.m, bits);
    const int64_t weights = weight_place(a, block, block.first, 0);
    WeightRows<kOutTiles> rows;
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
      float score[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, k, score);
      const WarpSeen<false> seen(thread, place, a.causal, key_valid, key, end, block.first + warp_row);
      const RowBits kept[2] = {drops.row(place, warp_row + place.row), drops.row(place, warp_row + place.row + 8)};
      rows.template weigh<kTiles>(thread, a.scale * kLog2E, seen.whole, seen.rows, kept, score);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, score, v, rows.out);
    }
    float inverse[2];
    float* const log_sum = part.alone ? a.log_sum : a.part_log_sum + part.number * a.b * a.h * a.n;
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto total = rows.total(thread, half);
      const int64_t own = block.first + warp_row + place.row + 8 * half;
      const bool counts = own < query_end && (query_valid == nullptr || query_valid[own]);
      inverse[half] = counts ? total.inverse * drops.scale() : 0.0f;
      if (own < a.n && place.pair == 0)
        log_sum[(block.b * a.h + block.h) * a.n + own] = counts ? total.log_sum : static_cast<float>(INFINITY);
    }
    const auto store = [&](auto* out) {
      store_fragment<kOutTiles>(thread, rows.out, inverse[0], inverse[1], out + (block.b * a.n * a.h + block.h) * a.e,
                                a.h * a.e, a.e, block.first + warp_row, a.n);
    };
    part.alone ? store(static_cast<Value*>(a.out)) : store(a.part_out + part.number * a.b * a.n * a.h * a.e);
  }
};

// The gradients of 64 rows: of queries (dq, and delta on the way), or, with kKeys, of keys and their values. With P the
// weights and D their dropout, on rows of queries: dS = P o (D o (dO V^T) - delta) scale, dq = dS K; on rows of keys
// the transposed ones: dk = dS^T Q, dv = (D o P)^T dO.
template <class Value, ProductKind kKind, int kWidth, bool kKeys>
struct AttentionBackwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kPlaces = tile_places(kWidth), kTileCount = 2 + 2 * kPlaces;
  static constexpr int kAtOnce = !kKeys                                       ? kTiles
                                 : kWidth > 32 || kKind == ProductKind::kTf32 ? kTiles / 4
                                                                              : kTiles / 2;  // registers are short
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kTileFloats = kAttentionTile * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows own{memory, kStride}, own_value{memory + kTileFloats, kStride};
    const auto other_tile = [&](int turn) { return SharedRows{memory + (2 + turn) * kTileFloats, kStride}; };
    const auto other_value_tile = [&](int turn) {
      return SharedRows{memory + (2 + kPlaces + turn) * kTileFloats, kStride};
    };
    float* const bits = memory + kTileCount * kTileFloats;
    auto* const numbers = reinterpret_cast<QueryNumbers*>(bits + TileKept<kKeys>::kFloats);  // of a tile's queries
    auto* const ends = reinterpret_cast<int*>(numbers + kAttentionTile);
    const int64_t rows = kKeys ? a.m : a.n;
    const SeenPart part(a.b * a.h, rows, kKeys ? a.n : a.m, thread.block());
    const HeadBlock block = head_block(a.h, part.block, rows);
    const bool* own_valid = flags_of(kKeys, block);
    const bool* other_valid = flags_of(!kKeys, block);
    const int64_t own_end = trimmed_end(thread, own_valid, rows, ends);
    const int64_t others = kKeys ? a.n : a.m;
    int end = std::min(static_cast<int>(trimmed_end(thread, other_valid, others, ends)), part.end), begin = part.first;
    const auto own_first = static_cast<int>(block.first);
    if (block.first >= own_end) end = 0;
    if (a.causal && kKeys && begin < own_first) begin = own_first;
    if (a.causal && !kKeys && end > own_first + kAttentionTile) end = own_first + kAttentionTile;
    const auto *const q = at_head<Value>(a.q, a.q_places, block), *const k = at_head<Value>(a.k, a.k_places, block);
    const auto* const v = at_head<Value>(a.v, a.v_places, block);
    const auto* const gradient = at_head<Value>(a.gradient, a.gradient_places, block);
    const int64_t statistics = (block.b * a.h + block.h) * a.n;
    load_tile<kWidth>(thread, kKeys ? k : q, kKeys ? a.k_places : a.q_places, a.d, block.first, own_end, own_valid,
                      own);
    load_tile<kWidth>(thread, kKeys ? v : gradient, kKeys ? a.v_places : a.gradient_places, a.e, block.first, own_end,
                      own_valid, own_value);
    thread.sync();
    if (!kKeys && thread.index() < kAttentionTile) {
      const int64_t query = block.first + thread.index();
      float total = 0;
      if (query < own_end) {
        const auto* const out = static_cast<const Value*>(a.out) + ((block.b * a.n + query) * a.h + block.h) * a.e;
        for (int c = 0; c < a.e; ++c) total += static_cast<float>(out[c]) * *own_value.at(thread.index(), c);
      }
      if (query < a.n && part.number == 0) a.delta[statistics + query] = total;
      numbers[thread.index()] = numbers_of(query, query < a.n ? a.log_sum + statistics : nullptr, total);
    }
    const int warp_row = thread.index() / kWarp * kTileRows;
    const FragmentPlace place(thread);
    const TileKept<kKeys> drops(a.drop, a.m, bits);
    const int64_t weights = weight_place(a, block, kKeys ? 0 : block.first, kKeys ? block.first : 0);
    QueryNumbers own_numbers[2] = {};
    if constexpr (!kKeys) {
      thread.sync();
      XFORMER_UNROLL
      for (int half = 0; half < 2; ++half) own_numbers[half] = numbers[warp_row + place.row + 8 * half];
    }
    float sum[kOutTiles][4] = {}, value_sum[kKeys ? kOutTiles : 1][4] = {};
    const auto send = [&](int from, int turn) {
      if (from < end) {
        send_tile<kWidth>(thread, kKeys ? q : k, kKeys ? a.q_places : a.k_places, a.d, from, end, other_valid,
                          other_tile(turn));
        send_tile<kWidth>(thread, kKeys ? gradient : v, kKeys ? a.gradient_places : a.v_places, a.e, from, end,
                          other_valid, other_value_tile(turn));
      }
      thread.end_copies();
    };
    if constexpr (kPlaces == 2) send(begin, 0);
    int turn = 0;
    for (int first = begin; first < end; first += kAttentionTile, turn = kPlaces - 1 - turn) {
      thread.sync();
      send(first + (kPlaces - 1) * kAttentionTile, kPlaces - 1 - turn);
      drops.draw(thread, weights + (kKeys ? first * a.m : first));
      if (kKeys && thread.index() < kAttentionTile) {
        const int query = first + thread.index();
        const bool there = query < end;
        numbers[thread.index()] =
            numbers_of(query, there ? a.log_sum + statistics : nullptr, there ? a.delta[statistics + query] : 0.0f);
      }
      thread.template await_copies<kPlaces - 1>();
      thread.sync();
      const SharedRows other = other_tile(turn), other_value = other_value_tile(turn);
      const WarpSeen<kKeys> seen(thread, place, a.causal, kKeys ? own_valid : other_valid, first, kKeys ? own_end : end,
                                 block.first + warp_row);
      const RowBits kept[2] = {drops.row(place, warp_row + place.row), drops.row(place, warp_row + place.row + 8)};
      const auto of_query = [&](int which, QueryNumbers* of) {
        if constexpr (kKeys) {
          uint32_t words[4];
          thread.load16(numbers + which * kTileColumns + 2 * place.pair, words);
          memcpy(of, words, sizeof(words));
        } else {
          of[0] = own_numbers[which];
        }
      };
      XFORMER_UNROLL
      for (int tile = 0; tile < kTiles; tile += kAtOnce) {
        const SharedRows some{other.at(tile * kTileColumns), kStride},
            value{other_value.at(tile * kTileColumns), kStride};
        float weight[kAtOnce][4] = {}, slope[kAtOnce][4] = {};
        multiply_rows<kKind, kWidth, kAtOnce>(thread, own, warp_row, some, weight);
        multiply_rows<kKind, kWidth, kAtOnce>(thread, own_value, warp_row, value, slope);
        weight_gradient<kKeys, kAtOnce>(thread, tile, a.scale * kLog2E, drops.scale(), seen.whole, seen.rows, kept,
                                        of_query, weight, slope);
        multiply_weights<kKind, kAtOnce, kOutTiles>(thread, slope, some, sum);
        if constexpr (kKeys) multiply_weights<kKind, kAtOnce, kOutTiles>(thread, weight, value, value_sum);
      }
    }
    const int64_t first = block.first + warp_row, head = block.b * rows * a.h + block.h;
    const auto store = [&](const float(*sums)[4], float factor, auto* to, int width) {
      store_fragment<kOutTiles>(thread, sums, factor, factor, to + head * width, a.h * width, width, first, rows);
    };
    if (part.alone) {
      store(sum, a.scale, static_cast<Value*>(kKeys ? a.dk : a.dq), a.d);
      if constexpr (kKeys) store(value_sum, drops.scale(), static_cast<Value*>(a.dv), a.e);
    } else {
      const int64_t row_count = a.b * rows * a.h;
      float* const to = (kKeys ? a.dk_parts : a.dq_parts) + part.number * row_count * (kKeys ? a.d + a.e : a.d);
      store(sum, a.scale, to, a.d);
      if constexpr (kKeys) store(value_sum, drops.scale(), to + row_count * a.d, a.e);
    }
  }

 private:
  // Of keys, or of queries.
  [[nodiscard]] XFORMER_DEVICE const bool* flags_of(bool keys, const HeadBlock& block) const {
    if (keys) return a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    return a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
  }
  // log_sums: of the head's queries; null where there is none.
  [[nodiscard]] XFORMER_DEVICE static QueryNumbers numbers_of(int64_t query, const float* log_sums, float delta) {
    return {log_sums == nullptr ? static_cast<float>(INFINITY) : log_sums[query] * kLog2E, delta};
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

// launch(grid, program) for the forward pass, then likewise for both parts of the backward pass, one behind the other.
template <class Value, ProductKind kKind, int kWidth, class Launch>
void run_attention_passes(const AttentionArguments& a, bool backward, const Launch& launch) {
  const auto grid = [&](int64_t rows, int64_t seen, int tiles) {
    return attention_grid(a.b, a.h, rows, kWidth, tiles, attention_division(a.b * a.h, rows, seen).parts);
  };
  if (!backward) {
    using Forward = AttentionForwardProgram<Value, kKind, kWidth>;
    launch(grid(a.n, a.m, Forward::kTileCount), Forward{a});
    if (a.part_out == nullptr) return;
    using Join = AttentionJoinProgram<Value>;
    return launch(row_grid(a.b * a.h * a.n, a.e, Join::kThreads), Join{a});
  }
  using Queries = AttentionBackwardProgram<Value, kKind, kWidth, false>;
  using Keys = AttentionBackwardProgram<Value, kKind, kWidth, true>;
  if (a.n > 0) launch(grid(a.n, a.m, Queries::kTileCount), Queries{a});
  if (a.m > 0) launch(grid(a.m, a.n, Keys::kTileCount), Keys{a});
}

// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_attention(const AttentionArguments& a, bool backward, const Launch& launch) {
  with_heads<Types>(a.type, a.product,
                    [&]<class Value, ProductKind kKind>(Value, std::integral_constant<ProductKind, kKind>) {
                      constexpr ProductKind kOwn = std::is_same_v<Value, float> ? kKind : ProductKind::kHalf;
                      attention_width(a.d, a.e) == 32 ? run_attention_passes<Value, kOwn, 32>(a, backward, launch)
                                                      : run_attention_passes<Value, kOwn, 64>(a, backward, launch);
                    });
}

}  // namespace xformer::kernels
