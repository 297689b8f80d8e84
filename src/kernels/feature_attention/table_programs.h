// The device programs of feature attention that fill its tables, and that read them (program.h).
#pragma once

#include "kernels/feature_attention/program.h"

namespace xformer::kernels {

// Sums over a part of the rows, of keys with their values, or with kQueries of queries with u and s: a block keeps
// those of 64 features in registers.
template <ProductKind kKind, int kWidth, bool kQueries>
struct FeatureSumsProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kTileSide * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows omega{memory, kStride}, x{memory + kFloats, kStride}, values{memory + 2 * kFloats, kStride};
    float *const shift = memory + 3 * kFloats, *const factor = shift + kTileSide, *const weight = factor + kTileSide;
    auto* const ends = reinterpret_cast<int*>(weight + kTileSide);
    const FeatureRows& side = kQueries ? a.q : a.k;
    const RowDivision division = feature_division(a.heads(), side.rows, a.f);
    const int64_t feature_tiles = tiles_of(a.f), unit = thread.block() / feature_tiles;
    const int64_t head = unit / division.parts, part = unit % division.parts;
    const int first = static_cast<int>(thread.block() % feature_tiles) * kTileSide;
    HeadBlock block{head / a.h, head % a.h, part * division.part_tiles * kTileSide};
    const bool* const valid = side.valid == nullptr ? nullptr : side.valid + block.b * side.rows;
    int64_t end = valid_end(thread, valid, side.rows, ends);
    if (end > block.first + division.part_tiles * kTileSide) end = block.first + division.part_tiles * kTileSide;
    load_omega<kWidth>(thread, a, first, omega);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    float sum[kOutTiles][4] = {}, total[2] = {0, 0};
    for (; block.first < end; block.first += kTileSide) {
      thread.sync();
      load_rows<kWidth>(thread, side.x, side.places, a.d, block, end, valid, x);
      load_rows<kWidth>(thread, kQueries ? a.gradient : a.v, kQueries ? a.gradient_places : a.v_places, a.e, block, end,
                        valid, values);
      if (thread.index() < kTileSide) {
        const int64_t row = block.first + thread.index(), at = head * side.rows + row;
        const bool counts = row < end && (valid == nullptr || valid[row]);
        shift[thread.index()] = counts && side.shift != nullptr ? side.shift[at] : 0.0f;
        factor[thread.index()] = !counts ? 0.0f : kQueries ? a.inverse[at] : 1.0f;
        weight[thread.index()] = !counts ? 0.0f : kQueries ? a.d_sum[at] : 1.0f;
      }
      thread.sync();
      float phi[kTiles][4] = {};
      feature_scores<kKind, kWidth, /*kTurned=*/true>(thread, a, first, x, omega, phi);
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i % 2;
          const float one = DeviceFeature(thread, a.map, phi[j][i], shift[column]).value + a.floor;
          total[i / 2] += one * weight[column];
          phi[j][i] = one * factor[column];
        }
      }
      multiply_weights<kKind, kTiles, kOutTiles>(thread, phi, values, sum);
    }
    float* const table = a.parts + unit * a.table_size();
    store_fragment<kOutTiles>(thread, sum, 1.0f, 1.0f, table, a.e, a.e, first + warp_row, a.f);
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int feature = first + warp_row + place.row + 8 * half;
      const float all = lane_sum(thread, total[half], 1, 4);
      if (feature < a.f && place.pair == 0) table[int64_t{a.f} * a.e + feature] = all;
    }
  }
};

// The output of 64 queries.
template <ProductKind kKind, int kWidth>
struct FeatureAnswerProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
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
    const bool* const valid = a.q.valid == nullptr ? nullptr : a.q.valid + block.b * a.q.rows;
    const int64_t end = valid_end(thread, valid, a.q.rows, ends);
    load_rows<kWidth>(thread, a.q.x, a.q.places, a.d, block, end, valid, x);
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
      load_omega<kWidth>(thread, a, first, omega);
      load_table<kWidth>(thread, a, head, first, table, sums);
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
    store_fragment<kOutTiles>(thread, out, inverse[0], inverse[1], a.out + (block.b * a.q.rows * a.h + block.h) * a.e,
                              a.h * a.e, a.e, block.first + warp_row, a.q.rows);
  }
};

// The gradients of 64 rows: of queries, and s on the way, or, with kKeys, of keys and their values.
template <ProductKind kKind, int kWidth, bool kKeys>
struct FeatureBackwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
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
    const bool* const valid = side.valid == nullptr ? nullptr : side.valid + block.b * side.rows;
    const int64_t end = valid_end(thread, valid, side.rows, ends);
    load_rows<kWidth>(thread, side.x, side.places, a.d, block, end, valid, x);
    load_rows<kWidth>(thread, kKeys ? a.v : a.gradient, kKeys ? a.v_places : a.gradient_places, a.e, block, end, valid,
                      values);
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
          const float* const out = a.out + ((block.b * side.rows + row) * a.h + block.h) * a.e;
          for (int c = place.pair; c < a.e; c += 4) product += out[c] * *values.at(own, c);
        }
        product = lane_sum(thread, product, 1, 4);
        if (a.divisor <= 0) weight[half] = -factor[half] * product;
        if (row < side.rows && place.pair == 0) a.d_sum[at] = weight[half];
      }
    }
    float sum[kOutTiles][4] = {}, value_sum[kKeys ? kOutTiles : 1][4] = {};
    for (int first = 0; first < (block.first < end ? a.f : 0); first += kTileSide) {
      thread.sync();
      load_omega<kWidth>(thread, a, first, omega);
      load_table<kWidth>(thread, a, head, first, table, sums);
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
    if (a.map == FeatureMap::kSoftmax) through_shift(thread, block, x, total, sum);
    const int64_t own_head = block.b * side.rows * a.h + block.h;
    store_fragment<kOutTiles>(thread, sum, scale, scale, (kKeys ? a.dk : a.dq) + own_head * a.d, a.h * a.d, a.d,
                              block.first + warp_row, side.rows);
    if constexpr (kKeys)
      store_fragment<kOutTiles>(thread, value_sum, factor[0], factor[1], a.dv + own_head * a.e, a.h * a.e, a.e,
                                block.first + warp_row, side.rows);
  }

 private:
  // What |x'|^2 / 2, and of queries c, take of a row's gradients of y, in `total` a lane's share of their sum.
  template <class Thread>
  XFORMER_DEVICE void through_shift(const Thread& thread, const HeadBlock& block, const SharedRows& x,
                                    const float* total, float (*sum)[4]) const {
    const FeatureRows& side = kKeys ? a.k : a.q;
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = thread.index() / kWarp * kTileRows + place.row + 8 * half;
      const int64_t row = block.first + own, at = (block.b * a.h + block.h) * side.rows + row;
      const float all = lane_sum(thread, total[half], 1, 4);
      if (row >= side.rows) continue;
      if (kKeys && place.pair == 0) a.slopes[at] = all;
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
};

// kSoftmax: what c takes of the gradients of all keys' y, to the key that gave it. A block for each head.
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
    a.dk[place] -= sum * a.scale * a.omega[int64_t{a.k.feature[head * m + key]} * a.d + thread.index()];
  }
};
[[nodiscard]] constexpr LaunchGrid key_winner_grid(int64_t heads) { return {heads, kTileThreads / kWarp * 4}; }

// launch(grid, program) for the programs of a stage, one behind the other.
template <ProductKind kKind, int kWidth, class Launch>
void run_feature_stage(const FeatureArguments& a, const Launch& launch) {
  const int64_t z = a.heads(), n = a.q.rows, m = a.k.rows;
  switch (a.stage) {
    case FeatureStage::kShifts:
      launch({z * (tiles_of(n) + tiles_of(m)), feature_bytes(kWidth, 2)}, FeatureShiftProgram<kKind, kWidth>{a});
      return launch(key_largest_grid(z), KeyLargestProgram{a});
    case FeatureStage::kKeySums:
      return launch(feature_sums_grid(z, m, a.f, kWidth), FeatureSumsProgram<kKind, kWidth, false>{a});
    case FeatureStage::kAnswers:
      return launch(feature_rows_grid(z, n, kWidth, 3), FeatureAnswerProgram<kKind, kWidth>{a});
    case FeatureStage::kQueryGradients:
      return launch(feature_rows_grid(z, n, kWidth, 4), FeatureBackwardProgram<kKind, kWidth, false>{a});
    case FeatureStage::kQuerySums:
      return launch(feature_sums_grid(z, n, a.f, kWidth), FeatureSumsProgram<kKind, kWidth, true>{a});
    case FeatureStage::kKeyGradients:
      launch(feature_rows_grid(z, m, kWidth, 4), FeatureBackwardProgram<kKind, kWidth, true>{a});
      if (a.map == FeatureMap::kSoftmax) launch(key_winner_grid(z), KeyWinnerProgram{a});
  }
}

template <class Launch>
void run_feature_stage(const FeatureArguments& a, const Launch& launch) {
  const bool narrow = feature_width(a.d, a.e) == 32;
  if (a.product == ProductKind::kTf32)
    return narrow ? run_feature_stage<ProductKind::kTf32, 32>(a, launch)
                  : run_feature_stage<ProductKind::kTf32, 64>(a, launch);
  narrow ? run_feature_stage<ProductKind::kFloat, 32>(a, launch)
         : run_feature_stage<ProductKind::kFloat, 64>(a, launch);
}

}  // namespace xformer::kernels
