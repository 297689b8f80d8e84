// The gradients of the causal form of feature attention as device programs (causal_programs.h).
#pragma once

#include "kernels/feature_attention/causal_programs.h"

namespace xformer::kernels {

// The gradients of 64 rows: of queries, and s on the way, or, with kKeys, of keys and their values. With B_ij = u_i v_j
// + s_i for keys j <= i, and W_ij the weights: those of features are B phi(k) and, of keys, B^T phi(q); dv = W^T u.
template <class Value, ProductKind kKind, int kWidth, bool kKeys>
struct CausalBackwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = kWidth > 32 ? 1 : 2;  // wide tiles fill sm_80's memory
  static constexpr int kTiles = kTileSide / kTileColumns, kOutTiles = kWidth / kTileColumns;
  static constexpr int kFeatureTiles = kCausalFeatures / kTileColumns;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kTileSide * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows features{memory, shared_stride(kCausalFeatures)};  // of the other side
    const SharedRows slopes{memory + kCausalFeatureFloats, shared_stride(kTileSide)};
    const SharedRows x{slopes.values + kTileFloats, kStride}, values{x.values + kFloats, kStride};
    const SharedRows other{x.values + 2 * kFloats, kStride}, omega{x.values + 3 * kFloats, kStride};
    const SharedRows table{omega.values + kCausalFeatures * kStride, kStride};
    float *const sums = x.values + 4 * kFloats, *const apart = sums + kTileSide;  // e + 1 of the latter
    const CausalNumbers beside{apart + 2 * kTileSide, apart + 3 * kTileSide, apart + 4 * kTileSide};
    // Of queries beside keys: 1 / denominator, s, and the floor times the sum of features.
    float *const inverse = apart + 5 * kTileSide, *const d_sum = inverse + kTileSide, *const floors = d_sum + kTileSide;
    auto* const ends = reinterpret_cast<int*>(floors + kTileSide);
    const FeatureRows &side = kKeys ? a.k : a.q, &far = kKeys ? a.q : a.k;
    const HeadBlock block = head_block(a.h, thread.block(), side.rows);
    const int64_t head = block.b * a.h + block.h, n = side.rows, row_at = head * n;
    const bool* const valid = side.valid == nullptr ? nullptr : side.valid + block.b * n;
    const bool* const far_valid = far.valid == nullptr ? nullptr : far.valid + block.b * n;
    const int64_t end = valid_end(thread, valid, n, ends);
    send_block<Value, kWidth>(thread, side.x, side.places, a.d, block, end, valid, x);
    send_block<Value, kWidth>(thread, kKeys ? a.v : a.gradient, kKeys ? a.v_places : a.gradient_places, a.e, block, end,
                              valid, values);
    send_block<Value, kWidth>(thread, far.x, far.places, a.d, block, n, far_valid, other);
    send_far_values(thread, block, far_valid, omega);  // and where the table will be
    beside.load(thread, a, far, head, block.first);
    if (kKeys && thread.index() < kTileSide) {
      const int64_t row = block.first + thread.index();
      inverse[thread.index()] = row < n ? a.inverse[row_at + row] : 0.0f;
      d_sum[thread.index()] = row < n ? a.d_sum[row_at + row] : 0.0f;
      floors[thread.index()] = row < n && a.apart() ? a.floor * a.totals[row_at + row] : 0.0f;
    }
    const CausalTables<kKeys> far_table(thread, a, head, block.first / kTileSide);
    far_table.load_apart(thread, a, apart);
    await_sent(thread);
    thread.sync();
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    // Of rows place.row and place.row + 8: by the table the gradient of a feature is factor (values S) + weight z.
    float shift[2] = {0, 0}, c[2] = {0, 0}, factor[2] = {0, 0}, weight[2] = {0, 0}, scale[2] = {1, 1}, more[2] = {0, 0};
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = warp_row + place.row + 8 * half;
      const int64_t row = block.first + own, at = row_at + row;
      const bool counts = row < end && (valid == nullptr || valid[row]);
      if (a.apart()) c[half] = border(a, head, row);
      if (counts && side.shift != nullptr) shift[half] = side.shift[at];
      if constexpr (kKeys) {
        factor[half] = weight[half] = counts ? 1.0f : 0.0f;
        if (a.apart()) scale[half] = decay(thread, c[half], border(a, head, block.first + kTileSide - 1));
      } else {
        if (a.apart() && block.first > 0) scale[half] = decay(thread, border(a, head, block.first - 1), c[half]);
        float product = 0, by_apart = 0;
        if (counts) {
          factor[half] = a.inverse[at];
          const auto* const out = static_cast<const Value*>(a.out) + ((block.b * n + row) * a.h + block.h) * a.e;
          for (int column = place.pair; column < a.e; column += 4) {
            product += static_cast<float>(out[column]) * *values.at(own, column);
            if (a.apart()) by_apart += apart[column] * *values.at(own, column);
          }
        }
        product = lane_sum(thread, product, 1, 4), by_apart = lane_sum(thread, by_apart, 1, 4);
        if (a.divisor <= 0) weight[half] = -factor[half] * product;
        more[half] = a.apart() ? factor[half] * by_apart + weight[half] * apart[a.e] : 0.0f;
        if (row < n && place.pair == 0) a.d_sum[at] = weight[half];
      }
    }
    // B, or its rows of keys, times what the products of features are times; a warp reads its own rows alone.
    float within[2] = {0, 0};
    {
      float product[kTiles][4] = {};
      multiply_rows<kKind, kWidth, kTiles>(thread, values, warp_row, omega, product);
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int own = warp_row + place.row + (i >= 2 ? 8 : 0), column = j * kTileColumns + 2 * place.pair + i % 2;
          const bool seen = (kKeys ? own <= column : column <= own) && beside.counts[column] > 0 && factor[i / 2] != 0;
          const float b =
              kKeys ? product[j][i] * inverse[column] + d_sum[column] : product[j][i] * factor[i / 2] + weight[i / 2];
          within[i / 2] += seen ? b : 0.0f;
          product[j][i] = seen ? b * product_scale(thread, c[i / 2], beside.c[column]) : 0.0f;
        }
      }
      put_fragment(thread, product, warp_row, slopes);
    }
    if constexpr (!kKeys) {
      XFORMER_UNROLL
      for (int half = 0; half < 2; ++half)
        more[half] = a.apart() ? a.floor * (more[half] + lane_sum(thread, within[half], 1, 4)) : 0.0f;
    }
    float sum[kOutTiles][4] = {}, value_sum[kKeys ? kOutTiles : 1][4] = {}, weights[kKeys ? kTiles : 1][4] = {};
    float total[2] = {0, 0}, by_largest[2] = {0, 0};
    for (int first = 0; first < (block.first < end ? a.f : 0); first += kCausalFeatures) {
      thread.sync();
      send_omega<kWidth, kCausalFeatures>(thread, a, first, omega);
      far_table.template load<kWidth>(thread, a, first, table, sums);
      await_sent(thread);
      thread.sync();
      put_features<kKind, kWidth>(thread, a, first, other, omega, beside.shift, !kKeys && a.apart() ? 0.0f : a.floor,
                                  features);
      float phi[kFeatureTiles][4] = {}, slope[kFeatureTiles][4] = {};
      multiply_rows<kKind, kWidth, kFeatureTiles>(thread, values, warp_row, table, slope);
      XFORMER_UNROLL
      for (int j = 0; j < kFeatureTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i)
          slope[j][i] = scale[i / 2] *
                        (factor[i / 2] * slope[j][i] + weight[i / 2] * sums[j * kTileColumns + 2 * place.pair + i % 2]);
      }
      thread.sync();
      multiply_columns<kKind, /*kTurned=*/false, kTileSide, kFeatureTiles>(thread, slopes, warp_row, features, slope);
      feature_scores<kKind, kWidth, /*kTurned=*/false>(thread, a, first, x, omega, phi);
      XFORMER_UNROLL
      for (int j = 0; j < kFeatureTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int feature = first + j * kTileColumns + 2 * place.pair + i % 2;
          const DeviceFeature one(thread, a.map, phi[j][i], shift[i / 2]);
          const bool there = feature < a.f;
          phi[j][i] = there ? one.value + (kKeys && a.apart() ? 0.0f : a.floor) : 0.0f;
          if constexpr (!kKeys) by_largest[i / 2] += phi[j][i] * slope[j][i];
          slope[j][i] = there ? (slope[j][i] + more[i / 2]) * one.slope : 0.0f;
          total[i / 2] += slope[j][i];
        }
      }
      if (a.omega != nullptr) {
        multiply_weights<kKind, kFeatureTiles, kOutTiles>(thread, slope, omega, sum);
      } else {
        XFORMER_UNROLL
        for (int j = 0; j < kOutTiles; ++j) {
          XFORMER_UNROLL
          for (int i = 0; i < 4; ++i)
            if (j / kFeatureTiles * kCausalFeatures == first) sum[j][i] = slope[j % kFeatureTiles][i];
        }
      }
      if constexpr (kKeys) {
        multiply_weights<kKind, kFeatureTiles, kOutTiles>(thread, phi, table, value_sum);
        multiply_weights_turned<kKind, kFeatureTiles, kTiles>(thread, phi, features, weights);
      }
    }
    if (a.map == FeatureMap::kSoftmax) {
      through_shift<kKeys>(thread, a, block, x, total, sum);
      if constexpr (!kKeys) {
        XFORMER_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int64_t row = block.first + warp_row + place.row + 8 * half;
          const float all = lane_sum(thread, by_largest[half], 1, 4);
          if (row < n && place.pair == 0) a.slopes[row_at + row] = all;
        }
      }
    }
    const float by_omega = a.omega != nullptr ? a.scale : 1.0f;
    const int64_t own_head = block.b * n * a.h + block.h;
    store_fragment<kOutTiles>(thread, sum, by_omega, by_omega,
                              static_cast<Value*>(kKeys ? a.dk : a.dq) + own_head * a.d, a.h * a.d, a.d,
                              block.first + warp_row, n);
    if constexpr (kKeys) {
      thread.sync();
      send_far_values(thread, block, far_valid, other);
      await_sent(thread);
      thread.sync();
      XFORMER_UNROLL
      for (int j = 0; j < kOutTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int column = j * kTileColumns + 2 * place.pair + i % 2;
          value_sum[j][i] =
              value_sum[j][i] * scale[i / 2] + (a.apart() && column < a.e ? a.floor * apart[column] : 0.0f);
        }
      }
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int own = warp_row + place.row + (i >= 2 ? 8 : 0), column = j * kTileColumns + 2 * place.pair + i % 2;
          const bool seen = own <= column && beside.counts[column] > 0 && factor[i / 2] != 0;
          const float w = weights[j][i] * product_scale(thread, c[i / 2], beside.c[column]) + floors[column];
          weights[j][i] = seen ? w * inverse[column] : 0.0f;
        }
      }
      multiply_weights<kKind, kTiles, kOutTiles>(thread, weights, other, value_sum);
      store_fragment<kOutTiles>(thread, value_sum, factor[0], factor[1], static_cast<Value*>(a.dv) + own_head * a.e,
                                a.h * a.e, a.e, block.first + warp_row, n);
    }
  }

 private:
  // Gradients beside keys, values beside queries.
  template <class Thread>
  XFORMER_DEVICE void send_far_values(const Thread& thread, const HeadBlock& block, const bool* valid,
                                      const SharedRows& into) const {
    send_block<Value, kWidth>(thread, kKeys ? a.gradient : a.v, kKeys ? a.gradient_places : a.v_places, a.e, block,
                              a.q.rows, valid, into);
  }

  // exp(c_j - c_i) of key j and query i.
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE float product_scale(const Thread& thread, float own, float far) const {
    if (!a.apart()) return 1;
    return kKeys ? decay(thread, own, far) : decay(thread, far, own);
  }
};

// kSoftmax: what c takes, to the keys that gave it: of the rows from a key on that have its c. A warp goes over 16
// keys.
template <class Value>
struct CausalWinnerProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  FeatureArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const HeadBlock block = head_block(a.h, thread.block(), a.k.rows);
    const int64_t m = a.k.rows, head = (block.b * a.h + block.h) * m, first = block.first + thread.index() / kWarp * 16;
    const int lane = thread.index() % kWarp;
    for (int64_t key = first; key < (first + 16 < m ? first + 16 : m); ++key) {
      if (a.winner[head + key] != key) continue;
      float sum = 0;
      for (int64_t row = key; row < m && a.winner[head + row] == key; row += kWarp)
        if (row + lane < m && a.winner[head + row + lane] == key) sum += a.slopes[head + row + lane];
      sum = lane_sum(thread, sum, 1, kWarp);
      const float* const omega = a.omega + int64_t{a.k.feature[head + key]} * a.d;
      auto* const dk = static_cast<Value*>(a.dk) + ((block.b * m + key) * a.h + block.h) * a.d;
      for (int i = lane; i < a.d; i += kWarp)
        dk[i] = static_cast<Value>(static_cast<float>(dk[i]) - sum * a.scale * omega[i]);
    }
  }
};
[[nodiscard]] constexpr LaunchGrid causal_winner_grid(int64_t heads, int64_t keys) {
  return {heads * tiles_of(keys), 0};
}

}  // namespace xformer::kernels
