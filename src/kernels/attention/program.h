// Attention (attention.h) as device programs: a block holds 64 rows of one head in shared memory, its four warps 16 of
// them each, and walks over the tiles of 64 that these rows see (Dao et al., "FlashAttention", 2022; the passes as in
// FlashAttention-2). Nothing is added by atomics: the backward pass goes once over rows of queries, for dq, and once
// over rows of keys, for dk and dv. Softmax and sums are in float, also of heads in bf16 or fp16: those are operands of
// TF32 products as they are.
#pragma once

#include <type_traits>

#include "kernels/device/heads.h"
#include "kernels/device/softmax.h"

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
};

// Heads of up to 32, or up to 64.
[[nodiscard]] constexpr int attention_width(int64_t d, int64_t e) { return d <= 32 && e <= 32 ? 32 : 64; }

// `tiles`: those kept in shared memory.
[[nodiscard]] constexpr LaunchGrid attention_grid(int64_t b, int64_t h, int64_t rows, int width, int tiles) {
  const int64_t floats =
      int64_t{tiles} * kAttentionTile * shared_stride(width) + kAttentionTile * (kAttentionTile + 8) / 2;
  return {b * h * ((rows + kAttentionTile - 1) / kAttentionTile),
          (floats + 2 * kAttentionTile + kTileThreads / kWarp) * 4};
}

// Where the weight of a query and a key is among all [b,h,n,m].
[[nodiscard]] XFORMER_DEVICE int64_t weight_place(const AttentionArguments& a, const HeadBlock& block, int64_t query,
                                                  int64_t key) {
  return ((block.b * a.h + block.h) * a.n + query) * a.m + key;
}

template <class Value, ProductKind kKind, int kWidth>
struct AttentionForwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth);
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows q{memory, kStride}, k{memory + kAttentionTile * kStride, kStride},
        v{memory + 2 * kAttentionTile * kStride, kStride};
    float* const drawn = memory + 3 * kAttentionTile * kStride;
    auto* const ends = reinterpret_cast<int*>(drawn + TileDraws::kFloats);
    const HeadBlock block = head_block(a.h, thread.block(), a.n);
    const bool* const key_valid = a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    const bool* const query_valid = a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
    int64_t end = valid_end(thread, key_valid, a.m, ends);
    if (block.first >= valid_end(thread, query_valid, a.n, ends)) end = 0;
    if (a.causal && end > block.first + kAttentionTile) end = block.first + kAttentionTile;
    const auto* const keys = at_head<Value>(a.k, a.k_places, block);
    const auto* const values = at_head<Value>(a.v, a.v_places, block);
    load_tile<kWidth>(thread, at_head<Value>(a.q, a.q_places, block), a.q_places, a.d, block.first, a.n, query_valid,
                      q);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, drawn);
    SoftmaxRows<kOutTiles> rows;
    for (int64_t key = 0; key < end; key += kAttentionTile) {
      thread.sync();
      load_tile<kWidth>(thread, keys, a.k_places, a.d, key, end, key_valid, k);
      load_tile<kWidth>(thread, values, a.v_places, a.e, key, end, key_valid, v);
      draws.draw(thread, [&](int row) { return weight_place(a, block, block.first + row, key); });
      thread.sync();
      float score[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, k, score);
      const auto seen = [&](int row, int column) {
        return key + column < end && (key_valid == nullptr || key_valid[key + column]) &&
               !(a.causal && key + column > block.first + row);
      };
      rows.template weigh<kTiles>(thread, a.scale, draws, warp_row, seen, score);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, score, v, rows.out);
    }
    float inverse[2];
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto total = rows.total(thread, half);
      const int64_t own = block.first + warp_row + place.row + 8 * half;
      const bool counts = own < a.n && (query_valid == nullptr || query_valid[own]);
      inverse[half] = counts ? total.inverse : 0.0f;
      if (own < a.n && place.pair == 0)
        a.log_sum[(block.b * a.h + block.h) * a.n + own] = counts ? total.log_sum : static_cast<float>(INFINITY);
    }
    store_fragment<kOutTiles>(thread, rows.out, inverse[0], inverse[1],
                              static_cast<Value*>(a.out) + (block.b * a.n * a.h + block.h) * a.e, a.h * a.e, a.e,
                              block.first + warp_row, a.n);
  }
};

// The gradients of 64 rows: of queries (dq, and delta on the way), or, with kKeys, of keys and their values. With P the
// weights and D their dropout, on rows of queries: dS = P o (D o (dO V^T) - delta) scale, dq = dS K; on rows of keys
// the transposed ones: dk = dS^T Q, dv = (D o P)^T dO.
template <class Value, ProductKind kKind, int kWidth, bool kKeys>
struct AttentionBackwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kTileFloats = kAttentionTile * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows own{memory, kStride}, own_value{memory + kTileFloats, kStride};
    const SharedRows other{memory + 2 * kTileFloats, kStride}, other_value{memory + 3 * kTileFloats, kStride};
    float *const drawn = memory + 4 * kTileFloats, *const log_sum = drawn + TileDraws::kFloats;
    float* const delta = log_sum + kAttentionTile;
    auto* const ends = reinterpret_cast<int*>(delta + kAttentionTile);
    const int64_t rows = kKeys ? a.m : a.n;
    const HeadBlock block = head_block(a.h, thread.block(), rows);
    const bool* const key_valid = a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    const bool* const query_valid = a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
    const bool *const own_valid = kKeys ? key_valid : query_valid, *const other_valid = kKeys ? query_valid : key_valid;
    const int64_t own_end = valid_end(thread, own_valid, rows, ends);
    int64_t end = valid_end(thread, other_valid, kKeys ? a.n : a.m, ends), begin = 0;
    if (block.first >= own_end) end = 0;
    if (a.causal && kKeys) begin = block.first;
    if (a.causal && !kKeys && end > block.first + kAttentionTile) end = block.first + kAttentionTile;
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
      if (query < a.n) a.delta[statistics + query] = total;
      delta[thread.index()] = total;
      log_sum[thread.index()] = query < a.n ? a.log_sum[statistics + query] : static_cast<float>(INFINITY);
    }
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, drawn);
    float sum[kOutTiles][4] = {}, value_sum[kKeys ? kOutTiles : 1][4] = {};
    for (int64_t first = begin; first < end; first += kAttentionTile) {
      thread.sync();
      load_tile<kWidth>(thread, kKeys ? q : k, kKeys ? a.q_places : a.k_places, a.d, first, end, other_valid, other);
      load_tile<kWidth>(thread, kKeys ? gradient : v, kKeys ? a.gradient_places : a.v_places, a.e, first, end,
                        other_valid, other_value);
      const int64_t query = kKeys ? first : block.first, key = kKeys ? block.first : first;
      draws.draw(thread, [&](int row) { return weight_place(a, block, query + row, key); });
      if (kKeys && thread.index() < kAttentionTile) {
        const int64_t row = query + thread.index();
        delta[thread.index()] = row < end ? a.delta[statistics + row] : 0.0f;
        log_sum[thread.index()] = row < end ? a.log_sum[statistics + row] : static_cast<float>(INFINITY);
      }
      thread.sync();
      float weight[kTiles][4] = {}, slope[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, own, warp_row, other, weight);
      multiply_rows<kKind, kWidth, kTiles>(thread, own_value, warp_row, other_value, slope);
      const auto seen = [&](int row, int column) {
        return key + column < (kKeys ? own_end : end) && (key_valid == nullptr || key_valid[key + column]) &&
               !(a.causal && key + column > query + row);
      };
      softmax_gradient<kKeys, kTiles>(thread, a.scale, draws, warp_row, seen, log_sum, delta, weight, slope);
      multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, other, sum);
      if constexpr (kKeys) multiply_weights<kKind, kTiles, kOutTiles>(thread, weight, other_value, value_sum);
    }
    const int64_t first = block.first + warp_row, head = block.b * rows * a.h + block.h;
    store_fragment<kOutTiles>(thread, sum, 1.0f, 1.0f, static_cast<Value*>(kKeys ? a.dk : a.dq) + head * a.d, a.h * a.d,
                              a.d, first, rows);
    if constexpr (kKeys)
      store_fragment<kOutTiles>(thread, value_sum, 1.0f, 1.0f, static_cast<Value*>(a.dv) + head * a.e, a.h * a.e, a.e,
                                first, rows);
  }
};

// launch(grid, program) for the forward pass, then likewise for both parts of the backward pass, one behind the other.
template <class Value, ProductKind kKind, int kWidth, class Launch>
void run_attention_passes(const AttentionArguments& a, bool backward, const Launch& launch) {
  if (!backward)
    return launch(attention_grid(a.b, a.h, a.n, kWidth, 3), AttentionForwardProgram<Value, kKind, kWidth>{a});
  if (a.n > 0)
    launch(attention_grid(a.b, a.h, a.n, kWidth, 4), AttentionBackwardProgram<Value, kKind, kWidth, false>{a});
  if (a.m > 0)
    launch(attention_grid(a.b, a.h, a.m, kWidth, 4), AttentionBackwardProgram<Value, kKind, kWidth, true>{a});
}

// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_attention(const AttentionArguments& a, bool backward, const Launch& launch) {
  const auto run = [&]<class Value, ProductKind kKind>(Value, std::integral_constant<ProductKind, kKind>) {
    attention_width(a.d, a.e) == 32 ? run_attention_passes<Value, kKind, 32>(a, backward, launch)
                                    : run_attention_passes<Value, kKind, 64>(a, backward, launch);
  };
  constexpr std::integral_constant<ProductKind, ProductKind::kTf32> kTf32;
  if (a.type == ElementType::kHalf) return run(typename Types::Half(), kTf32);
  if (a.type == ElementType::kBFloat16) return run(typename Types::BFloat16(), kTf32);
  if (a.product == ProductKind::kTf32) return run(float(), kTf32);
  run(float(), std::integral_constant<ProductKind, ProductKind::kFloat>());
}

}  // namespace xformer::kernels
