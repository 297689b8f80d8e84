// The gradients of attention (attention.h) as device programs, and which programs a pass is (program.h).
#pragma once

#include "kernels/attention/program.h"

namespace xformer::kernels {

// The gradients of 64 rows: of queries (dq, and delta on the way), or, with kKeys, of keys and their values. With P the
// weights and D their dropout, on rows of queries: dS = P o (D o (dO V^T) - delta) scale, dq = dS K; on rows of keys
// the transposed ones: dk = dS^T Q, dv = (D o P)^T dO.
template <class Value, ProductKind kKind, int kWidth, int kRowTiles, bool kKeys>
struct AttentionBackwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 && kRowTiles == 1 ? 3 : 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kPlaces = tile_places(kWidth), kTileCount = 2 * kRowTiles + 2 * kPlaces;
  static constexpr int kSide = kRowTiles * kTileSide, kHalves = 2 * kRowTiles;
  // Tiles of columns: registers are short.
  static constexpr int kAtOnce = kRowTiles > 1                                ? kKeys ? kTiles / 4 : kTiles / 2
                                 : !kKeys                                     ? kTiles
                                 : kWidth > 32 || kKind == ProductKind::kTf32 ? kTiles / 4
                                                                              : kTiles / 2;
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kTileFloats = kAttentionTile * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows own{memory, kStride}, own_value{memory + kRowTiles * kTileFloats, kStride};
    const auto other_tile = [&](int turn) {
      return SharedRows{memory + (2 * kRowTiles + turn) * kTileFloats, kStride};
    };
    const auto other_value_tile = [&](int turn) {
      return SharedRows{memory + (2 * kRowTiles + kPlaces + turn) * kTileFloats, kStride};
    };
    float* const bits = memory + kTileCount * kTileFloats;
    auto* const numbers =
        reinterpret_cast<QueryNumbers*>(bits + TileKept<kKeys, kRowTiles>::kFloats);  // of a tile's queries
    auto* const ends = reinterpret_cast<int*>(numbers + kSide);
    const int64_t rows = kKeys ? a.m : a.n;
    const SeenPart part = seen_part<kRowTiles>(a.b * a.h, rows, kKeys ? a.n : a.m, thread.block());
    const HeadBlock block = head_block(a.h, part.block, rows, kSide);
    const bool* own_valid = flags_of(kKeys, block);
    const bool* other_valid = flags_of(!kKeys, block);
    const int64_t own_end = trimmed_end(thread, own_valid, rows, ends);
    const int64_t others = kKeys ? a.n : a.m;
    int end = std::min(static_cast<int>(trimmed_end(thread, other_valid, others, ends)), part.end), begin = part.first;
    const auto own_first = static_cast<int>(block.first);
    if (block.first >= own_end) end = 0;
    if (a.causal && kKeys && begin < own_first) begin = own_first;
    if (a.causal && !kKeys && end > own_first + kSide) end = own_first + kSide;
    const auto *const q = at_head<Value>(a.q, a.q_places, block), *const k = at_head<Value>(a.k, a.k_places, block);
    const auto* const v = at_head<Value>(a.v, a.v_places, block);
    const auto* const gradient = at_head<Value>(a.gradient, a.gradient_places, block);
    const int64_t statistics = (block.b * a.h + block.h) * a.n;
    send_tile<kWidth, kSide>(thread, kKeys ? k : q, kKeys ? a.k_places : a.q_places, a.d, block.first, own_end,
                             own_valid, own);
    send_tile<kWidth, kSide>(thread, kKeys ? v : gradient, kKeys ? a.v_places : a.gradient_places, a.e, block.first,
                             own_end, own_valid, own_value);
    await_sent(thread);
    thread.sync();
    if (!kKeys && thread.index() < kSide) {
      const int64_t query = block.first + thread.index();
      float total = 0;
      if (query < own_end) {
        const auto* const out = static_cast<const Value*>(a.out) + ((block.b * a.n + query) * a.h + block.h) * a.e;
        for (int c = 0; c < a.e; ++c) total += static_cast<float>(out[c]) * *own_value.at(thread.index(), c);
      }
      if (query < a.n && part.number == 0) a.delta[statistics + query] = total;
      numbers[thread.index()] = numbers_of(query, query < a.n ? a.log_sum + statistics : nullptr, total);
    }
    const int warp_row = thread.index() / kWarp * kRowTiles * kTileRows;
    const FragmentPlace place(thread);
    const TileKept<kKeys, kRowTiles> drops(a.drop, a.m, bits);
    const int64_t weights = weight_place(a, block, kKeys ? 0 : block.first, kKeys ? block.first : 0);
    QueryNumbers own_numbers[kHalves] = {};
    if constexpr (!kKeys) {
      thread.sync();
      XFORMER_UNROLL
      for (int half = 0; half < kHalves; ++half) own_numbers[half] = numbers[warp_row + place.row + 8 * half];
    }
    float sum[kRowTiles * kOutTiles][4] = {}, value_sum[kKeys ? kRowTiles * kOutTiles : 1][4] = {};
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
      const WarpSeen<kKeys, kRowTiles> seen(thread, place, a.causal, kKeys ? own_valid : other_valid, first,
                                            kKeys ? own_end : end, block.first + warp_row);
      RowBits kept[kHalves];
      XFORMER_UNROLL
      for (int half = 0; half < kHalves; ++half) kept[half] = drops.row(place, warp_row + place.row + 8 * half);
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
        float weight[kRowTiles * kAtOnce][4] = {}, slope[kRowTiles * kAtOnce][4] = {};
        multiply_rows<kKind, kWidth, kAtOnce, kRowTiles>(thread, own, warp_row, some, weight);
        multiply_rows<kKind, kWidth, kAtOnce, kRowTiles>(thread, own_value, warp_row, value, slope);
        weight_gradient<kKeys, kAtOnce, kRowTiles>(thread, tile, a.scale * kLog2E, drops.scale(), seen.whole, seen.rows,
                                                   kept, of_query, weight, slope);
        multiply_weights<kKind, kAtOnce, kOutTiles, kRowTiles>(thread, slope, some, sum);
        if constexpr (kKeys) multiply_weights<kKind, kAtOnce, kOutTiles, kRowTiles>(thread, weight, value, value_sum);
      }
    }
    const int64_t first = block.first + warp_row, head = block.b * rows * a.h + block.h;
    const auto store = [&](const float(*sums)[4], float factor, auto* to, int width) {
      XFORMER_UNROLL
      for (int r = 0; r < kRowTiles; ++r)
        store_fragment<kOutTiles>(thread, sums + r * kOutTiles, factor, factor, to + head * width, a.h * width, width,
                                  first + r * kTileRows, rows);
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

// launch(grid, program) for the forward pass, then likewise for both parts of the backward pass, one behind the other.
template <class Value, ProductKind kKind, int kWidth, class Launch>
void run_attention_passes(const AttentionArguments& a, bool backward, const Launch& launch) {
  const auto run = [&](int64_t rows, int64_t seen, const auto& program_of) {
    const auto with = [&]<int kRowTiles>(std::integral_constant<int, kRowTiles> row_tiles) {
      const auto program = program_of(row_tiles);
      launch(attention_grid(a.b, a.h, rows, kWidth, program.kTileCount, kRowTiles,
                            kRowTiles > 1 ? 1 : attention_division(a.b * a.h, rows, seen).parts),
             program);
    };
    if constexpr (kWidth == 32 && kKind != ProductKind::kTf32)  // which gains little, and a package has its limit
      if (a.row_tiles == 2 || (a.row_tiles == 0 && attention_row_tiles(a.b * a.h, rows, kWidth) == 2))
        return with(std::integral_constant<int, 2>());
    with(std::integral_constant<int, 1>());
  };
  if (!backward) {
    run(a.n, a.m, [&]<int kRowTiles>(std::integral_constant<int, kRowTiles>) {
      return AttentionForwardProgram<Value, kKind, kWidth, kRowTiles>{a};
    });
    if (a.part_out == nullptr) return;
    using Join = AttentionJoinProgram<Value>;
    return launch(row_grid(a.b * a.h * a.n, a.e, Join::kThreads), Join{a});
  }
  if (a.n > 0)
    run(a.n, a.m, [&]<int kRowTiles>(std::integral_constant<int, kRowTiles>) {
      return AttentionBackwardProgram<Value, kKind, kWidth, kRowTiles, false>{a};
    });
  if (a.m > 0)
    run(a.m, a.n, [&]<int kRowTiles>(std::integral_constant<int, kRowTiles>) {
      return AttentionBackwardProgram<Value, kKind, kWidth, kRowTiles, true>{a};
    });
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
