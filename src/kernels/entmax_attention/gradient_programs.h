// The backward pass of attention by alpha-entmax on a device. With G = D o (dO V^T) the weights' gradients (D their
// dropout) and u = p^(1 - b) of a row (program.h), the gradient of its scores is u (G - mean), mean = u G / sum u
// (entmax.h). Over rows of queries,
//   dq = scale (sum u G k - mean sum u k)
// in one walk, for which the mean need not be known, and alpha's gradient; over rows of keys, dk and dv from the means.
#pragma once

#include "kernels/entmax_attention/program.h"

namespace xformer::kernels {

// What a block of either launch has of the backward pass's heads.
struct EntmaxGradientHeads {
  const float *q, *k, *v, *gradient;
  const bool *key_valid, *query_valid;
  int64_t rows;  // where the head's numbers begin in [b,h,n]

  XFORMER_DEVICE EntmaxGradientHeads(const EntmaxArguments& a, const HeadBlock& block)
      : q(at_head<float>(a.q, a.q_places, block)),
        k(at_head<float>(a.k, a.k_places, block)),
        v(at_head<float>(a.v, a.v_places, block)),
        gradient(at_head<float>(a.gradient, a.gradient_places, block)),
        key_valid(a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m),
        query_valid(a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n),
        rows((block.b * a.h + block.h) * a.n) {}
};

// Sums over the keys of a row. Of any power u is p + e, and with e the differences near alpha = 1 keep their digits.
struct EntmaxSums {
  float u = 0, gu = 0;                // of any power e and G e
  float gp = 0, entropy = 0, gh = 0;  // of any power: G p, h = -p log p, G h

  template <EntmaxPower kPower>
  XFORMER_DEVICE void add(const EntmaxHead& head, const EntmaxWeight& weight, float x, float g) {
    if constexpr (kPower == EntmaxPower::kAny) {
      const float e = -x * weight.u, h = -weight.p * weight.log * head.inverse_b;
      u += e, gu += g * e, gp += g * weight.p, entropy += h, gh += g * h;
    } else {
      u += weight.u, gu += g * weight.u;
    }
  }
  template <class Thread>
  XFORMER_DEVICE void gather(const Thread& thread) {
    u = lane_sum(thread, u, 1, 4), gu = lane_sum(thread, gu, 1, 4), gp = lane_sum(thread, gp, 1, 4);
    entropy = lane_sum(thread, entropy, 1, 4), gh = lane_sum(thread, gh, 1, 4);
  }
  [[nodiscard]] XFORMER_DEVICE float mean(const EntmaxHead& head) const {
    if (head.power == EntmaxPower::kAny) return (gp + gu) / (1 + u);
    return gu / (u > 0.5f ? u : 0.5f);  // rows without a key: 0
  }
  [[nodiscard]] XFORMER_DEVICE float alpha(const EntmaxHead& head) const {
    return ((gp * u - gu) / (1 + u) * head.inverse_b + gh - mean(head) * entropy) * head.inverse_b;
  }
};

template <ProductKind kKind, int kWidth>
struct EntmaxAttentionQueryProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  // Wide sums leave room for fewer products.
  static constexpr int kPart = kWidth == 64 ? kEntmaxPart / 2 : kEntmaxPart;
  static constexpr int kTiles = kPart / kTileColumns, kOutTiles = kWidth / kTileColumns;
  EntmaxArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kAttentionTile * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows q{memory, kStride}, gradient{memory + kFloats, kStride}, k{memory + 2 * kFloats, kStride},
        v{memory + 3 * kFloats, kStride};
    float* const drawn = memory + 4 * kFloats;
    auto* const ends = reinterpret_cast<int*>(drawn + TileDraws::kFloats);
    const HeadBlock block = head_block(a.h, thread.block(), a.n);
    const EntmaxHead head(a, block.h);
    const EntmaxGradientHeads from(a, block);
    int64_t end = valid_end(thread, from.key_valid, a.m, ends);
    const int64_t own_end = valid_end(thread, from.query_valid, a.n, ends);
    if (block.first >= own_end) end = 0;
    if (a.causal && end > block.first + kAttentionTile + a.ahead()) end = block.first + kAttentionTile + a.ahead();
    load_tile<kWidth>(thread, from.q, a.q_places, a.d, block.first, own_end, from.query_valid, q);
    load_tile<kWidth>(thread, from.gradient, a.gradient_places, a.e, block.first, own_end, from.query_valid, gradient);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, drawn);
    float threshold[2];
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t own = block.first + warp_row + place.row + 8 * half;
      threshold[half] = own < a.n ? a.log_sum[from.rows + own] : kNoThreshold;
    }
    EntmaxSums sums[2];
    float sum[kOutTiles][4] = {}, without[kOutTiles][4] = {};  // sums of u G k and of u k
    for (int64_t key = 0; key < end; key += kAttentionTile) {
      thread.sync();
      load_tile<kWidth>(thread, from.k, a.k_places, a.d, key, end, from.key_valid, k);
      load_tile<kWidth>(thread, from.v, a.v_places, a.e, key, end, from.key_valid, v);
      draws.draw(thread, [&](int row) { return weight_place(a, block, block.first + row, key); });
      thread.sync();
      for (int part = 0; part < kAttentionTile && key + part < end; part += kPart) {
        const SharedRows some_keys{k.at(part), kStride}, some_values{v.at(part), kStride};
        float u[kTiles][4] = {}, slope[kTiles][4] = {};
        multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, some_keys, u);
        const auto x_of = [&](int j, int i) {
          const int64_t own = key + part + j * kTileColumns + 2 * place.pair + i % 2;
          const int64_t query = block.first + warp_row + place.row + (i >= 2 ? 8 : 0);
          const bool seen =
              own < end && (from.key_valid == nullptr || from.key_valid[own]) && !(a.causal && own > query + a.ahead());
          return seen ? u[j][i] * head.factor - threshold[i / 2] : -kNoThreshold;
        };
        if (!any_weight<kTiles>(thread, x_of)) continue;
        multiply_rows<kKind, kWidth, kTiles>(thread, gradient, warp_row, some_values, slope);
        with_power(head.power, [&](auto power) {
          constexpr EntmaxPower kPower = decltype(power)::kValue;
          XFORMER_UNROLL
          for (int j = 0; j < kTiles; ++j) {
            XFORMER_UNROLL
            for (int i = 0; i < 4; ++i) {
              const int row = warp_row + place.row + (i >= 2 ? 8 : 0);
              const int column = part + j * kTileColumns + 2 * place.pair + i % 2;
              const float x = x_of(j, i);
              const EntmaxWeight weight = entmax_weight<kPower>(thread, head, x);
              const float g = slope[j][i] * draws.factor(row, column);
              sums[i / 2].template add<kPower>(head, weight, weight.u > 0 ? x : 0.0f, g);
              u[j][i] = weight.u;
              slope[j][i] = weight.u * g;
            }
          }
        });
        multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, some_keys, sum);
        multiply_weights<kKind, kTiles, kOutTiles>(thread, u, some_keys, without);
      }
    }
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      sums[half].gather(thread);
      const float mean = sums[half].mean(head);
      XFORMER_UNROLL
      for (int j = 0; j < kOutTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) sum[j][i] -= mean * without[j][i];
      }
      const int64_t own = block.first + warp_row + place.row + 8 * half;
      if (own >= a.n || place.pair > 0) continue;
      a.delta[from.rows + own] = mean;
      if (a.alpha_rows != nullptr) a.alpha_rows[from.rows + own] = sums[half].alpha(head);
    }
    store_fragment<kOutTiles>(thread, sum, a.scale, a.scale,
                              static_cast<float*>(a.dq) + (block.b * a.n * a.h + block.h) * a.d, a.h * a.d, a.d,
                              block.first + warp_row, a.n);
  }
};

template <ProductKind kKind, int kWidth>
struct EntmaxAttentionKeyProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  static constexpr int kTiles = kEntmaxPart / kTileColumns, kOutTiles = kWidth / kTileColumns;
  EntmaxArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth), kFloats = kAttentionTile * kStride;
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows k{memory, kStride}, v{memory + kFloats, kStride}, q{memory + 2 * kFloats, kStride},
        gradient{memory + 3 * kFloats, kStride};
    float *const drawn = memory + 4 * kFloats, *const thresholds = drawn + TileDraws::kFloats;
    float* const means = thresholds + kAttentionTile;
    auto* const ends = reinterpret_cast<int*>(means + kAttentionTile);
    const HeadBlock block = head_block(a.h, thread.block(), a.m);
    const EntmaxHead head(a, block.h);
    const EntmaxGradientHeads from(a, block);
    const int64_t own_end = valid_end(thread, from.key_valid, a.m, ends);
    int64_t end = valid_end(thread, from.query_valid, a.n, ends);
    if (block.first >= own_end) end = 0;
    const int64_t begin = a.causal && block.first > a.ahead() ? block.first - a.ahead() : 0;
    load_tile<kWidth>(thread, from.k, a.k_places, a.d, block.first, own_end, from.key_valid, k);
    load_tile<kWidth>(thread, from.v, a.v_places, a.e, block.first, own_end, from.key_valid, v);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, drawn);
    float sum[kOutTiles][4] = {}, value_sum[kOutTiles][4] = {};
    for (int64_t query = begin; query < end; query += kAttentionTile) {
      thread.sync();
      load_tile<kWidth>(thread, from.q, a.q_places, a.d, query, end, from.query_valid, q);
      load_tile<kWidth>(thread, from.gradient, a.gradient_places, a.e, query, end, from.query_valid, gradient);
      draws.draw(thread, [&](int row) { return weight_place(a, block, query + row, block.first); });
      if (thread.index() < kAttentionTile) {
        const int64_t row = query + thread.index();
        thresholds[thread.index()] = row < end ? a.log_sum[from.rows + row] : kNoThreshold;
        means[thread.index()] = row < end ? a.delta[from.rows + row] : 0.0f;
      }
      thread.sync();
      for (int part = 0; part < kAttentionTile && query + part < end; part += kEntmaxPart) {
        const SharedRows some_queries{q.at(part), kStride}, some_gradients{gradient.at(part), kStride};
        float weight[kTiles][4] = {}, slope[kTiles][4] = {};
        multiply_rows<kKind, kWidth, kTiles>(thread, k, warp_row, some_queries, weight);
        const auto x_of = [&](int j, int i) {
          const int row = part + j * kTileColumns + 2 * place.pair + i % 2;
          const int64_t own = block.first + warp_row + place.row + (i >= 2 ? 8 : 0);
          const bool seen = own < own_end && (from.key_valid == nullptr || from.key_valid[own]) &&
                            !(a.causal && own > query + row + a.ahead());
          return seen ? weight[j][i] * head.factor - thresholds[row] : -kNoThreshold;
        };
        if (!any_weight<kTiles>(thread, x_of)) continue;
        multiply_rows<kKind, kWidth, kTiles>(thread, v, warp_row, some_gradients, slope);
        with_power(head.power, [&](auto power) {
          XFORMER_UNROLL
          for (int j = 0; j < kTiles; ++j) {
            XFORMER_UNROLL
            for (int i = 0; i < 4; ++i) {
              const int row = part + j * kTileColumns + 2 * place.pair + i % 2;
              const EntmaxWeight made = entmax_weight<decltype(power)::kValue>(thread, head, x_of(j, i));
              const float kept = draws.factor(row, warp_row + place.row + (i >= 2 ? 8 : 0));
              weight[j][i] = made.p * kept;
              slope[j][i] = made.u * (slope[j][i] * kept - means[row]);
            }
          }
        });
        multiply_weights<kKind, kTiles, kOutTiles>(thread, slope, some_queries, sum);
        multiply_weights<kKind, kTiles, kOutTiles>(thread, weight, some_gradients, value_sum);
      }
    }
    const int64_t first = block.first + warp_row, start = block.b * a.m * a.h + block.h;
    store_fragment<kOutTiles>(thread, sum, a.scale, a.scale, static_cast<float*>(a.dk) + start * a.d, a.h * a.d, a.d,
                              first, a.m);
    store_fragment<kOutTiles>(thread, value_sum, 1.0f, 1.0f, static_cast<float*>(a.dv) + start * a.e, a.h * a.e, a.e,
                              first, a.m);
  }
};

// launch(grid, program) for the forward pass, then likewise for both parts of the backward pass, one behind the other.
template <ProductKind kKind, int kWidth, class Launch>
void run_entmax_attention(const EntmaxArguments& a, bool backward, const Launch& launch) {
  if (!backward) return launch(entmax_grid(a.b, a.h, a.n, kWidth, 3), EntmaxAttentionForwardProgram<kKind, kWidth>{a});
  if (a.n > 0) launch(entmax_grid(a.b, a.h, a.n, kWidth, 4), EntmaxAttentionQueryProgram<kKind, kWidth>{a});
  if (a.m > 0) launch(entmax_grid(a.b, a.h, a.m, kWidth, 4), EntmaxAttentionKeyProgram<kKind, kWidth>{a});
}

template <class Launch>
void run_entmax_attention(const EntmaxArguments& a, bool backward, const Launch& launch) {
  const bool narrow = attention_width(a.d, a.e) == 32;
  if (a.product == ProductKind::kTf32)
    return narrow ? run_entmax_attention<ProductKind::kTf32, 32>(a, backward, launch)
                  : run_entmax_attention<ProductKind::kTf32, 64>(a, backward, launch);
  narrow ? run_entmax_attention<ProductKind::kFloat, 32>(a, backward, launch)
         : run_entmax_attention<ProductKind::kFloat, 64>(a, backward, launch);
}

}  // namespace xformer::kernels
