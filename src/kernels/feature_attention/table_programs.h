// The device programs of feature attention that fill its tables, and that read them (program.h).
#pragma once

#include "kernels/feature_attention/program.h"

namespace xformer::kernels {

// exp(from - to), also where both are minus infinity.
template <class Thread>
XFORMER_DEVICE float decay(const Thread& thread, float from, float to) {
  return from == to ? 1.0f : thread.exp(from - to);
}

// Causal kSoftmax: c of row `row` of a head, or of its last row. Sums over keys are relative to the c of the last of
// them, sums over queries to that of the row before the first.
XFORMER_DEVICE float border(const FeatureArguments& a, int64_t head, int64_t row) {
  return a.largest[head * a.k.rows + (row < a.k.rows ? row : a.k.rows - 1)];
}

// Sums over a part of the rows, of keys with their values, or with kQueries of queries with u and s: a block keeps
// those of 64 features in registers. Causal, it goes over queries from the last to the first, and leaves what it has
// before each 64 rows.
template <class Value, ProductKind kKind, int kWidth, bool kQueries, bool kCausal>
struct FeatureSumsProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kTileSide * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows omega{memory, kStride}, x{memory + kFloats, kStride}, values{memory + 2 * kFloats, kStride};
    float *const shift = memory + 3 * kFloats, *const factor = shift + kTileSide, *const weight = factor + kTileSide;
    float *const apart_factor = weight + kTileSide, *const apart_weight = apart_factor + kTileSide;
    auto* const ends = reinterpret_cast<int*>(apart_weight + kTileSide);
    const FeatureRows& side = kQueries ? a.q : a.k;
    const RowDivision division = feature_division(a.heads(), side.rows, a.f);
    const int64_t feature_tiles = tiles_of(a.f), unit = thread.block() / feature_tiles;
    const int64_t head = unit / division.parts, part = unit % division.parts;
    const int first = static_cast<int>(thread.block() % feature_tiles) * kTileSide;
    const bool* valid = side.valid == nullptr ? nullptr : side.valid + head / a.h * side.rows;
    const int64_t end = trimmed_end(thread, valid, side.rows, ends);
    const int64_t begin_tile = part * division.part_tiles;
    const int64_t end_tile = std::min(begin_tile + division.part_tiles, tiles_of(kCausal ? side.rows : end));
    send_omega<kWidth>(thread, a, first, omega);
    await_sent(thread);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const bool apart = kCausal && a.apart(), sums_apart = apart && first == 0 && thread.index() <= a.e;
    float sum[kOutTiles][4] = {}, total[2] = {0, 0}, apart_sum = 0;
    const auto store = [&](float* table) {
      store_fragment<kOutTiles>(thread, sum, 1.0f, 1.0f, table, a.e, a.e, first + warp_row, a.f);
      XFORMER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int feature = first + warp_row + place.row + 8 * half;
        const float all = lane_sum(thread, total[half], 1, 4);
        if (feature < a.f && place.pair == 0) table[a.z_at() + feature] = all;
      }
      if (sums_apart) table[a.apart_at() + thread.index()] = apart_sum;
    };
    for (int64_t i = begin_tile; i < end_tile; ++i) {
      const int64_t tile = kCausal && kQueries ? begin_tile + end_tile - 1 - i : i;
      const HeadBlock block{head / a.h, head % a.h, tile * kTileSide};
      if (kCausal && i > begin_tile) store(a.chunks + (head * tiles_of(side.rows) + tile) * a.table_size());
      float now = 0;  // apart: what the sums are relative to after this tile
      if (apart) {
        const int64_t last = block.first + (kQueries ? -1 : kTileSide - 1),
                      before = last + (kQueries ? 1 : -1) * kTileSide;
        now = border(a, head, last < 0 ? 0 : last);
        const float was = i == begin_tile ? now : border(a, head, before);
        const float scale = kQueries ? decay(thread, now, was) : decay(thread, was, now);
        XFORMER_UNROLL
        for (int j = 0; j < kOutTiles; ++j) {
          XFORMER_UNROLL
          for (int one = 0; one < 4; ++one) sum[j][one] *= scale;
        }
        total[0] *= scale, total[1] *= scale;
      }
      if (block.first >= end) continue;
      thread.sync();
      send_block<Value, kWidth>(thread, side.x, side.places, a.d, block, end, valid, x);
      send_block<Value, kWidth>(thread, kQueries ? a.gradient : a.v, kQueries ? a.gradient_places : a.v_places, a.e,
                                block, end, valid, values);
      if (thread.index() < kTileSide) {
        const int64_t row = block.first + thread.index(), at = head * side.rows + row;
        const bool counts = row < end && (valid == nullptr || valid[row]);
        float own_factor = !counts ? 0.0f : kQueries ? a.inverse[at] : 1.0f;
        float own_weight = !counts ? 0.0f : kQueries ? a.d_sum[at] : 1.0f;
        shift[thread.index()] = counts && side.shift != nullptr ? side.shift[at] : 0.0f;
        if (apart) {
          const float more = counts && kQueries ? a.totals[at] : 1.0f;
          apart_factor[thread.index()] = own_factor * more, apart_weight[thread.index()] = own_weight * more;
          const float c = border(a, head, row), scale = kQueries ? decay(thread, now, c) : decay(thread, c, now);
          own_factor *= scale, own_weight *= scale;
        }
        factor[thread.index()] = own_factor, weight[thread.index()] = own_weight;
      }
      await_sent(thread);
      thread.sync();
      if (sums_apart)
        for (int row = 0; row < kTileSide; ++row)
          apart_sum += thread.index() == a.e ? apart_weight[row] : apart_factor[row] * *values.at(row, thread.index());
      const float floor = apart && !kQueries ? 0.0f : a.floor;
      float phi[kTiles][4] = {};
      feature_scores<kKind, kWidth, /*kTurned=*/true>(thread, a, first, x, omega, phi);
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int one = 0; one < 4; ++one) {
          const int column = j * kTileColumns + 2 * place.pair + one % 2;
          const float value = DeviceFeature(thread, a.map, phi[j][one], shift[column]).value + floor;
          total[one / 2] += value * weight[column];
          phi[j][one] = value * factor[column];
        }
      }
      multiply_weights<kKind, kTiles, kOutTiles>(thread, phi, values, sum);
    }
    store(a.parts + unit * a.table_size());
  }
};

// The output of 64 queries.
template <class Value, ProductKind kKind, int kWidth>
struct FeatureAnswerProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 ? 3 : 2;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kTileSide * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows x{memory, kStride}, omega{memory + kFloats, kStride}, table{memory + 2 * kFloats, kStride};
    float* const sums = memory + 3 * kFloats;
    auto* const ends = reinterpret_cast<int*>(sums + kTileSide);
    const HeadBlock block = head_block(a.h, thread.block(), a.q.rows);
    const int64_t head = block.b * a.h + block.h;
    const bool* valid = a.q.valid == nullptr ? nullptr : a.q.valid + block.b * a.q.rows;
    const int64_t end = trimmed_end(thread, valid, a.q.rows, ends);
    send_block<Value, kWidth>(thread, a.q.x, a.q.places, a.d, block, end, valid, x);
    await_sent(thread);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    float shift[2] = {0, 0}, total[2] = {0, 0}, out[kOutTiles][4] = {};
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t row = block.first + warp_row + place.row + 8 * half;
      if (row < a.q.rows && a.q.shift != nullptr) shift[half] = a.q.shift[head * a.q.rows + row];
    }
    for (int first = 0; first < (block.first < end ? a.f : 0); first += kTileSide) {
      thread.sync();
      send_omega<kWidth>(thread, a, first, omega);
      send_table<kWidth>(thread, a, head, first, table, sums);
      await_sent(thread);
      thread.sync();
      float phi[kTiles][4] = {};
      feature_scores<kKind, kWidth, /*kTurned=*/false>(thread, a, first, x, omega, phi);
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i % 2;
          phi[j][i] = DeviceFeature(thread, a.map, phi[j][i], shift[i / 2]).value + a.floor;
          total[i / 2] += phi[j][i] * sums[column];  // 0 behind the last feature
        }
      }
      multiply_weights<kKind, kTiles, kOutTiles>(thread, phi, table, out);
    }
    float inverse[2];
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t row = block.first + warp_row + place.row + 8 * half;
      const float sum = lane_sum(thread, total[half], 1, 4) + a.epsilon;
      const bool counts = row < end && (valid == nullptr || valid[row]);
      inverse[half] = !counts ? 0.0f : a.divisor > 0 ? 1 / a.divisor : sum == 0 ? 1.0f : 1 / sum;
      if (row < a.q.rows && place.pair == 0) a.inverse[head * a.q.rows + row] = inverse[half];
    }
    store_fragment<kOutTiles>(thread, out, inverse[0], inverse[1],
                              static_cast<Value*>(a.out) + (block.b * a.q.rows * a.h + block.h) * a.e, a.h * a.e, a.e,
                              block.first + warp_row, a.q.rows);
  }
};

// kSoftmax: what |x'|^2 / 2, and of queries c, take of the gradients of y of 64 rows x, in `total` a lane's share of
// their sums over features.
template <bool kKeys, int kOutTiles, class Thread>
XFORMER_DEVICE void through_shift(const Thread& thread, const FeatureArguments& a, const HeadBlock& block,
                                  const SharedRows& x, const float* total, float (&sum)[kOutTiles][4]) {
  const FeatureRows& side = kKeys ? a.k : a.q;
  const FragmentPlace place(thread);
  XFORMER_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int own = thread.index() / kWarp * kTileRows + place.row + 8 * half;
    const int64_t row = block.first + own, at = (block.b * a.h + block.h) * side.rows + row;
    const float all = lane_sum(thread, total[half], 1, 4);
    if (row >= side.rows) continue;
    if (kKeys && !a.causal && place.pair == 0) a.slopes[at] = all;
    const float* const winner = kKeys ? nullptr : a.omega + int64_t{side.feature[at]} * a.d;
    XFORMER_UNROLL
    for (int j = 0; j < kOutTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = j * kTileColumns + 2 * place.pair + i;
        if (column >= a.d) continue;
        sum[j][2 * half + i] -= all * (a.scale * *x.at(own, column) + (kKeys ? 0.0f : winner[column]));
      }
    }
  }
}

// The gradients of 64 rows: of queries, and s on the way, or, with kKeys, of keys and their values.
template <class Value, ProductKind kKind, int kWidth, bool kKeys>
struct FeatureBackwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth == 32 && !kKeys ? 3 : 2;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kTileSide * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows x{memory, kStride}, values{memory + kFloats, kStride};
    const SharedRows omega{memory + 2 * kFloats, kStride}, table{memory + 3 * kFloats, kStride};
    float* const sums = memory + 4 * kFloats;
    auto* const ends = reinterpret_cast<int*>(sums + kTileSide);
    const FeatureRows& side = kKeys ? a.k : a.q;
    const HeadBlock block = head_block(a.h, thread.block(), side.rows);
    const int64_t head = block.b * a.h + block.h;
    const bool* valid = side.valid == nullptr ? nullptr : side.valid + block.b * side.rows;
    const int64_t end = trimmed_end(thread, valid, side.rows, ends);
    send_block<Value, kWidth>(thread, side.x, side.places, a.d, block, end, valid, x);
    send_block<Value, kWidth>(thread, kKeys ? a.v : a.gradient, kKeys ? a.v_places : a.gradient_places, a.e, block, end,
                              valid, values);
    await_sent(thread);
    thread.sync();
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    // Of rows place.row and place.row + 8: the gradient of a feature is factor (values S) + weight z.
    float shift[2] = {0, 0}, factor[2] = {0, 0}, weight[2] = {0, 0}, total[2] = {0, 0};
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = warp_row + place.row + 8 * half;
      const int64_t row = block.first + own, at = head * side.rows + row;
      const bool counts = row < end && (valid == nullptr || valid[row]);
      if (counts && side.shift != nullptr) shift[half] = side.shift[at];
      if constexpr (kKeys) {
        factor[half] = weight[half] = counts ? 1.0f : 0.0f;
      } else {
        float product = 0;
        if (counts) {
          factor[half] = a.inverse[at];
          const auto* const out =
              static_cast<const Value*>(a.out) + ((block.b * side.rows + row) * a.h + block.h) * a.e;
          for (int c = place.pair; c < a.e; c += 4) product += static_cast<float>(out[c]) * *values.at(own, c);
        }
        product = lane_sum(thread, product, 1, 4);
        if (a.divisor <= 0) weight[half] = -factor[half] * product;
        if (row < side.rows && place.pair == 0) a.d_sum[at] = weight[half];
      }
    }
    float sum[kOutTiles][4] = {}, value_sum[kKeys ? kOutTiles : 1][4] = {};
    for (int first = 0; first < (block.first < end ? a.f : 0); first += kTileSide) {
      thread.sync();
      send_omega<kWidth>(thread, a, first, omega);
      send_table<kWidth>(thread, a, head, first, table, sums);
      await_sent(thread);
      thread.sync();
      float phi[kTiles][4] = {}, slope[kTiles][4] = {};
      feature_scores<kKind, kWidth, /*kTurned=*/false>(thread, a, first, x, omega, phi);
      multiply_rows<kKind, kWidth, kTiles>(thread, values, warp_row, table, slope);
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i % 2;
          const DeviceFeature one(thread, a.map, phi[j][i], shift[i / 2]);
          phi[j][i] = one.value + a.floor;
          // 0 behind the last feature, where rows of the table and z are.
          slope[j][i] = (factor[i / 2] * slope[j][i] + weight[i / 2] * sums[column]) * one.slope;
          total[i / 2] += slope[j][i];
        }
      }
      if (a.omega != nullptr) {
        multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, omega, sum);
      } else {
        XFORMER_UNROLL
        for (int j = 0; j < kOutTiles; ++j) {
          XFORMER_UNROLL
          for (int i = 0; i < 4; ++i) sum[j][i] = slope[j][i];
        }
      }
      if constexpr (kKeys) multiply_weights<kKind, kTiles, kOutTiles>(thread, phi, table, value_sum);
    }
    const float scale = a.omega != nullptr ? a.scale : 1.0f;
    if (a.map == FeatureMap::kSoftmax) through_shift<kKeys>(thread, a, block, x, total, sum);
    const int64_t own_head = block.b * side.rows * a.h + block.h;
    store_fragment<kOutTiles>(thread, sum, scale, scale, static_cast<Value*>(kKeys ? a.dk : a.dq) + own_head * a.d,
                              a.h * a.d, a.d, block.first + warp_row, side.rows);
    if constexpr (kKeys)
      store_fragment<kOutTiles>(thread, value_sum, factor[0], factor[1], static_cast<Value*>(a.dv) + own_head * a.e,
                                a.h * a.e, a.e, block.first + warp_row, side.rows);
  }
};

// kSoftmax: what c takes of the gradients of all keys' y, to the key that gave it. A block for each head.
template <class Value>
struct KeyWinnerProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const shares = static_cast<float*>(thread.shared());
    const int64_t m = a.k.rows, head = thread.block();
    float sum = 0;
    for (int64_t j = thread.index(); j < m; j += kThreads) sum += a.slopes[head * m + j];
    sum = lane_sum(thread, sum, 1, kWarp);
    if (thread.index() % kWarp == 0) shares[thread.index() / kWarp] = sum;
    thread.sync();
    sum = 0;
    for (int i = 0; i < kThreads / kWarp; ++i) sum += shares[i];
    const int64_t key = a.winner[head * m];
    if (key < 0 || thread.index() >= a.d) return;
    const int64_t place = ((head / a.h * m + key) * a.h + head % a.h) * a.d + thread.index();
    auto* const dk = static_cast<Value*>(a.dk) + place;
    const float share = sum * a.scale * a.omega[int64_t{a.k.feature[head * m + key]} * a.d + thread.index()];
    *dk = static_cast<Value>(static_cast<float>(*dk) - share);
  }
};
[[nodiscard]] constexpr LaunchGrid key_winner_grid(int64_t heads) { return {heads, kTileThreads / kWarp * 4}; }

}  // namespace xformer::kernels
