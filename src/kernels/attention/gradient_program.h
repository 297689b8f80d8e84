// The gradients of attention (attention.h) as device programs, and which programs a pass is (program.h).
#pragma once

#include "kernels/attention/program.h"
#include "kernels/device/joined.h"

namespace xformer::kernels {

// The gradients of 64 rows: of queries (dq), or, with kKeys, of keys and their values. With P the weights and D their
// dropout, on rows of queries: dS = P o (D o (dO V^T) - delta) scale, dq = dS K; on rows of keys the transposed ones:
// dk = dS^T Q, dv = (D o P)^T dO. dS is an operand of 16 bits' range: it is made in units in which |dO V^T| <= kWidth
// 2^2kPlaneExponent and with it everything in the brackets is at most 2.
template <class Value, ProductKind kKind, int kWidth, bool kKeys>
struct AttentionBackwardProgram {
  static constexpr int kTerms = plane_terms(kKind);
  using Tile = HalfTile<kWidth, kTerms>;
  using Memory = AttentionMemory<Tile, 2, kKeys>;
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
  static constexpr int kTiles = kAttentionTile / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kAtOnce = 2;  // tiles of columns: registers are short
  static constexpr int kPlaces = Memory::kPlaces, kSharedBytes = Memory::kBytes;
  // Whether a lane keeps its part of both own tiles: of wide heads in two terms one is read again each time.
  static constexpr bool kHolds = !(kKeys && kWidth * kTerms > 64);
  AttentionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const Memory memory{static_cast<char*>(thread.shared())};
    const int64_t rows = kKeys ? a.m : a.n, seen_rows = kKeys ? a.n : a.m;
    const SeenPart part(a.b * a.h, rows, seen_rows, thread.block());
    const HeadBlock block = head_block(a.h, part.block, rows);
    const int64_t head = block.b * a.h + block.h;
    const bool* own_valid = flags_of(kKeys, block);
    const bool* other_valid = flags_of(!kKeys, block);
    const auto own_end = static_cast<int>(trimmed_end(thread, own_valid, rows, memory.ends()));
    int end = std::min(static_cast<int>(trimmed_end(thread, other_valid, seen_rows, memory.ends())), part.end),
        begin = part.first;
    const auto own_first = static_cast<int>(block.first);
    if (own_first >= own_end) end = 0;
    if (a.causal && kKeys && begin < own_first) begin = own_first;
    if (a.causal && !kKeys && end > own_first + kTileSide) end = own_first + kTileSide;

    const auto factor = [&](int plane) { return a.factors[plane * a.b * a.h + head]; };
    // The slopes' unit, and what it makes of delta.
    constexpr int kWidthExponent = kWidth == 32 ? 5 : 6;
    static_assert(1 << kWidthExponent == kWidth);
    const float kept_scale = survivors_scale(a.drop);
    int exponent = 2 * kPlaneExponent + kWidthExponent;
    for (float most = 1; most < kept_scale; most *= 2) ++exponent;
    const float unit = float_of(static_cast<uint32_t>(127 - exponent) << 23);
    const auto numbers_of = [&](int64_t query, bool there) {
      return QueryNumbers{
          there ? kWeightExponent - a.log_sum[head * a.n + query] * kLog2E : -static_cast<float>(INFINITY),
          there ? a.delta[head * a.n + query] * factor(kGradientPlane) * unit * factor(kValuePlane) : 0.0f};
    };
    // What comes before a tile is used.
    const auto prepare = [&](int from, int turn) {
      if (from < end) {
        const int tile = from / kTileSide, own_tile = own_first / kTileSide;
        const int64_t place = head * tiles_of(seen_rows) + tile;
        send_plane<Tile>(thread, a.planes[kKeys ? kQueryPlane : kKeyPlane], place, memory.other(0, turn));
        send_plane<Tile>(thread, a.planes[kKeys ? kGradientPlane : kValuePlane], place, memory.other(1, turn));
        const TileKept kept = memory.kept(turn);
        if (a.kept != nullptr) {
          const uint32_t* const words = kept_place(a, head, kKeys ? tile : own_tile, kKeys ? own_tile : tile);
          const int at = 4 * thread.index();
          if (at < TileKept::kWords)
            thread.copy16(reinterpret_cast<float*>(kept.words()) + at, reinterpret_cast<const float*>(words) + at, 4);
        } else if (a.drop.threshold > 0) {
          kept.draw(thread, DeviceDraws(a.drop),
                    weight_place(a, block, kKeys ? from : own_first, kKeys ? own_first : from), a.m);
        }
        if (kKeys && thread.index() < kTileSide)
          memory.numbers(turn)[thread.index()] = numbers_of(from + thread.index(), from + thread.index() < end);
      }
      thread.end_copies();
    };
    if (a.drop.threshold == 0) {
      XFORMER_UNROLL
      for (int turn = 0; turn < kPlaces; ++turn) memory.kept(turn).keep_all(thread);
    }
    char* const own_value = memory.memory + Tile::kBytes;
    const int64_t own_place = head * tiles_of(rows) + own_first / kTileSide;
    send_plane<Tile>(thread, a.planes[kKeys ? kKeyPlane : kQueryPlane], own_place, memory.memory);
    send_plane<Tile>(thread, a.planes[kKeys ? kValuePlane : kGradientPlane], own_place, own_value);
    thread.end_copies();
    prepare(begin, 0);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const FragmentPlace place(thread);
    QueryNumbers own_numbers[2] = {};
    if constexpr (!kKeys) {
      XFORMER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int query = own_first + warp_row + place.row + 8 * half;
        own_numbers[half] = numbers_of(query, query < a.n);
      }
    }
    thread.template await_copies<1>();
    thread.sync();
    HalfRows<kWidth, kTerms> own_rows, own_values;
    own_rows.load(thread, memory.memory, warp_row);
    if constexpr (kHolds) own_values.load(thread, own_value, warp_row);
    const float scale = a.scale * kLog2E / factor(kQueryPlane) / factor(kKeyPlane);
    float sum[kOutTiles][4] = {}, value_sum[kKeys ? kOutTiles : 1][4] = {};
    int turn = 0;
    for (int first = begin; first < end; first += kAttentionTile, turn = kPlaces - 1 - turn) {
      if (kPlaces == 1 && first > begin) {
        thread.sync();
        prepare(first, 0);
      }
      thread.template await_copies<0>();
      thread.sync();
      if constexpr (kPlaces == 2) prepare(first + kAttentionTile, 1 - turn);
      const TileKept drops = memory.kept(turn);
      const QueryNumbers* const numbers = memory.numbers(turn);
      const WarpSeen<kKeys> seen(thread, place, a.causal, kKeys ? own_valid : other_valid, first, kKeys ? own_end : end,
                                 own_first + warp_row);
      XFORMER_UNROLL_NEVER  // else what is read ahead takes all registers
          for (int tile = 0; tile < kTiles; tile += kAtOnce) {
        const auto of_query = [&](int which, QueryNumbers* of) {
          if constexpr (kKeys) {
            uint32_t words[4];
            thread.load16(numbers + (tile + which) * kTileColumns + 2 * place.pair, words);
            memcpy(of, words, sizeof(words));
          } else {
            of[0] = own_numbers[which];
          }
        };
        RowBits seen_here[2], kept[2];
        seen.take(tile, seen_here);
        if constexpr (!kKeys) {
          XFORMER_UNROLL
          for (int half = 0; half < 2; ++half)
            kept[half] = RowBits(place, drops.row(warp_row + place.row + 8 * half, tile / RowBits::kTiles) >>
                                            (tile % RowBits::kTiles * kTileColumns));
        }
        const auto kept_in = [&](int which) {
          uint32_t columns[2] = {};
          if constexpr (kKeys) {
            drops.rows((tile + which) * kTileColumns + 2 * place.pair, warp_row / kWarp, columns);
            columns[0] >>= warp_row % kWarp + place.row, columns[1] >>= warp_row % kWarp + place.row;
          }
          return [&kept, which, one = columns[0], other = columns[1]](int half, int i) {
            if constexpr (kKeys) return ((i == 0 ? one : other) >> (8 * half) & 1) != 0;
            else return kept[half].at(which, i);
          };
        };
        const int column = tile * kTileColumns;
        float weight[kAtOnce][4] = {}, slope[kAtOnce][4] = {};
        const RowProduct<kWidth, kTerms> scores{own_rows, memory.other(0, turn), weight};
        const RowProduct<kWidth, kTerms> slopes{own_values, memory.other(1, turn), slope};
        if constexpr (!kHolds) own_values.load(thread, own_value, warp_row);
        multiply_rows<kAtOnce>(thread, {scores, slopes}, column);
        weight_gradient<kKeys, kAtOnce>(thread, scale, kept_scale * unit, seen.whole, seen_here, of_query, kept_in,
                                        weight, slope);
        multiply_weights<kAtOnce, kWidth, kTerms>(thread, slope, memory.other(0, turn), column, sum);
        if constexpr (kKeys)
          multiply_weights<kAtOnce, kWidth, kTerms>(thread, weight, memory.other(1, turn), column, value_sum);
      }
    }
    constexpr float kWeightUnit = 1.0f / (1 << kWeightExponent);
    const float sum_scale = a.scale * kWeightUnit / unit / factor(kGradientPlane) / factor(kValuePlane) /
                            factor(kKeys ? kQueryPlane : kKeyPlane);
    const float value_scale = kept_scale * kWeightUnit / factor(kGradientPlane);
    const int64_t head_row = block.b * rows * a.h + block.h;
    const auto store = [&](const float(*sums)[4], float by, auto* to, int width) {
      store_fragment<kOutTiles>(thread, sums, by, by, to + head_row * width, a.h * width, width, own_first + warp_row,
                                rows);
    };
    if (part.alone) {
      store(sum, sum_scale, static_cast<Value*>(kKeys ? a.dk : a.dq), a.d);
      if constexpr (kKeys) store(value_sum, value_scale, static_cast<Value*>(a.dv), a.e);
    } else {
      const int64_t row_count = a.b * rows * a.h;
      float* const to = (kKeys ? a.dk_parts : a.dq_parts) + part.number * row_count * (kKeys ? a.d + a.e : a.d);
      store(sum, sum_scale, to, a.d);
      if constexpr (kKeys) store(value_sum, value_scale, to + row_count * a.d, a.e);
    }
  }

 private:
  // Of keys, or of queries.
  [[nodiscard]] XFORMER_DEVICE const bool* flags_of(bool keys, const HeadBlock& block) const {
    if (keys) return a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    return a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
  }
};

// launch(grid, program) for the forward pass, then likewise for both parts of the backward pass, which are one launch;
// before either the planes that it reads.
template <class Value, ProductKind kKind, int kWidth, class Launch>
void run_attention_passes(const AttentionArguments& a, const PlaneArguments& planes, bool backward,
                          const Launch& launch) {
  launch(plane_grid(planes), PlaneMaximaProgram<Value, kWidth>{planes});
  launch(plane_grid(planes), PlaneProgram<Value, kKind, kWidth>{planes});
  const auto grid = [&](int64_t rows, int64_t seen, const auto& program) {
    return attention_grid(a.b * a.h, rows, seen, program.kSharedBytes);
  };
  if (!backward) {
    const AttentionForwardProgram<Value, kKind, kWidth> program{a};
    launch(grid(a.n, a.m, program), program);
    if (a.part_out == nullptr) return;
    using Join = AttentionJoinProgram<Value>;
    return launch(row_grid(a.b * a.h * a.n, a.e, Join::kThreads), Join{a});
  }
  // Few keys have many queries each, and their blocks take longer.
  const AttentionBackwardProgram<Value, kKind, kWidth, true> of_keys{a};
  const AttentionBackwardProgram<Value, kKind, kWidth, false> of_queries{a};
  launch_joined(grid(a.m, a.n, of_keys), of_keys, grid(a.n, a.m, of_queries), of_queries, launch);
}

// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_attention(const AttentionArguments& a, const PlaneArguments& planes, bool backward, const Launch& launch) {
  with_heads<Types>(
      a.type, a.product, [&]<class Value, ProductKind kKind>(Value, std::integral_constant<ProductKind, kKind>) {
        attention_width(a.d, a.e) == 32 ? run_attention_passes<Value, kKind, 32>(a, planes, backward, launch)
                                        : run_attention_passes<Value, kKind, 64>(a, planes, backward, launch);
      });
}

}  // namespace xformer::kernels
