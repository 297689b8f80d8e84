// Attention by alpha-entmax (entmax_attention.h) as device programs, in blocks and tiles of attention's
// (attention/program.h). With b = alpha - 1 and y = b scale q k^T, the weights of a row with the threshold t are
//   p = [1 + y - t]_+^(1 / b)   and   u = p^(1 - b) is what -b dp / dt is.
// A block walks over the keys of its rows several times. The first walk finds each row's largest y: with that as the
// threshold the weights sum to at least 1. Each further one sums them, P, and takes Newton's step, not for P but for
// the norm P^b of what lies above the threshold, which is convex too and nearly straight, exactly so where all y are
// equal:
//   t += (P - P^(1 - b)) / sum u
// rises to the root in 2 to 9 steps for 2,048 keys; near alpha = 1 in 3, where steps for P itself take 11. The last
// walk multiplies weights and values. Steps end for all rows of a block together, on the device.
#pragma once

#include <cmath>

#include "kernels/attention/program.h"
#include "kernels/device/softmax.h"
#include "kernels/entmax/power.h"

namespace xformer::kernels {

inline constexpr float kNoThreshold = INFINITY;  // of a row without a weight
inline constexpr int kEntmaxPart = 32;           // columns of a tile that a warp has products with at a time

// log_sum holds the thresholds and delta the means that gradients are taken from.
struct EntmaxArguments : AttentionArguments {
  EntmaxPower power = EntmaxPower::kAny;
  float alpha_less_1 = 0;         // of all heads, where `alphas` is null
  const float* alphas = nullptr;  // [h]
  float* alpha_rows = nullptr;    // [b,h,n], written by the backward pass: each row's part of alpha's gradient

  // Query i stands at position i + ahead(): queries have the last of the keys' positions.
  [[nodiscard]] XFORMER_DEVICE int64_t ahead() const { return m - n; }
};

// The numbers of a head.
struct EntmaxHead {
  EntmaxPower power;
  float b, inverse_b, factor;  // factor: y of q k

  XFORMER_DEVICE EntmaxHead(const EntmaxArguments& a, int64_t h)
      : power(a.power),
        b(a.alphas == nullptr ? a.alpha_less_1 : a.alphas[h] - 1),
        inverse_b(1 / b),
        factor(b * a.scale) {}

  // P - P^(1 - b), with its digits near P = 1.
  [[nodiscard]] XFORMER_DEVICE float excess(float sum) const {
    if (power == EntmaxPower::kOne) return sum - 1;
    if (power == EntmaxPower::kTwo) return sum - std::sqrt(sum);
    return -sum * std::expm1(-b * std::log(sum));
  }
  // What P may lie above 1 before the last step, which leaves less than 1e-6 of it (6,000 random rows of each alpha).
  [[nodiscard]] XFORMER_DEVICE float rest() const { return b > 0.5f ? 4e-6f : 1e-3f; }
};

template <EntmaxPower kPower>
struct EntmaxPowerIs {
  static constexpr EntmaxPower kValue = kPower;
};

// visit(EntmaxPowerIs<power>)
template <class Visit>
XFORMER_DEVICE void with_power(EntmaxPower power, const Visit& visit) {
  if (power == EntmaxPower::kOne) visit(EntmaxPowerIs<EntmaxPower::kOne>());
  else if (power == EntmaxPower::kTwo) visit(EntmaxPowerIs<EntmaxPower::kTwo>());
  else visit(EntmaxPowerIs<EntmaxPower::kAny>());
}

// What x = y - t makes. `log`: of 1 + x, for any power.
struct EntmaxWeight {
  float p = 0, u = 0, log = 0;
};
template <EntmaxPower kPower, class Thread>
XFORMER_DEVICE EntmaxWeight entmax_weight(const Thread& thread, const EntmaxHead& head, float x) {
  const float above = 1 + x;
  if constexpr (kPower == EntmaxPower::kOne) return above > 0 ? EntmaxWeight{above, 1, 0} : EntmaxWeight{};
  if constexpr (kPower == EntmaxPower::kTwo) return above > 0 ? EntmaxWeight{above * above, above, 0} : EntmaxWeight{};
  const bool some = above > 0;
  const float log = std::log1p(some ? x : 0.0f), u = some ? thread.exp(log * (head.inverse_b - 1)) : 0.0f;
  return {some ? u * above : 0.0f, u, log};
}

// Whether it holds for any thread of a block. `memory`: an int for each warp.
template <class Thread>
XFORMER_DEVICE bool any_of_block(const Thread& thread, bool mine, int* memory) {
  int any = mine ? 1 : 0;
  for (int mask = 1; mask < kWarp; mask *= 2) any |= thread.shuffle_xor(any, mask);
  if (thread.index() % kWarp == 0) memory[thread.index() / kWarp] = any;
  thread.sync();
  for (int i = 0; i < kTileThreads / kWarp; ++i) any |= memory[i];
  thread.sync();
  return any != 0;
}

// Whether any of a warp's products has a weight, by x_of(j, i) of the fragments; where none has there is nothing to
// multiply.
template <int kTiles, class Thread, class XOf>
XFORMER_DEVICE bool any_weight(const Thread& thread, const XOf& x_of) {
  int any = 0;
  XFORMER_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) any |= x_of(j, i) > -1 ? 1 : 0;
  }
  for (int mask = 1; mask < kWarp; mask *= 2) any |= thread.shuffle_xor(any, mask);
  return any != 0;
}

// Rows of a warp while their thresholds are sought: g and g + 8 of each lane.
struct EntmaxRows {
  float threshold[2] = {-kNoThreshold, -kNoThreshold}, sum[2] = {0, 0}, slope[2] = {0, 0};

  // The first walk, x from the threshold 0.
  template <int kTiles, class XOf>
  XFORMER_DEVICE void raise(const XOf& x_of) {
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float y = x_of(j, i);
        threshold[i / 2] = y > threshold[i / 2] ? y : threshold[i / 2];
      }
    }
  }
  // Behind it; `counts`: whether the row is to have weights. Returns whether it has.
  template <class Thread>
  XFORMER_DEVICE bool begin(const Thread& thread, int half, bool counts) {
    XFORMER_UNROLL
    for (int mask = 1; mask < 4; mask *= 2) {
      const float other = thread.shuffle_xor(threshold[half], mask);
      threshold[half] = other > threshold[half] ? other : threshold[half];
    }
    const bool some = counts && threshold[half] > -kNoThreshold;
    if (!some) threshold[half] = kNoThreshold;
    return some;
  }

  // The others: products become weights, which are summed.
  template <int kTiles, class Thread, class XOf>
  XFORMER_DEVICE void weigh(const Thread& thread, const EntmaxHead& head, const XOf& x_of, float (*score)[4]) {
    with_power(head.power, [&](auto power) {
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const EntmaxWeight weight = entmax_weight<decltype(power)::kValue>(thread, head, x_of(j, i));
          sum[i / 2] += weight.p, slope[i / 2] += weight.u;
          score[j][i] = weight.p;
        }
      }
    });
  }
  // Behind each of them but the last; returns whether the row needs one more.
  template <class Thread>
  XFORMER_DEVICE bool step(const Thread& thread, const EntmaxHead& head, int half) {
    const float all = total(thread, half), slopes = lane_sum(thread, slope[half], 1, 4);
    sum[half] = slope[half] = 0;
    if (!(all > 0)) return false;
    const float before = threshold[half];
    threshold[half] += head.excess(all) / slopes;
    return all - 1 > head.rest() && threshold[half] > before;
  }
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE float total(const Thread& thread, int half) const {
    return lane_sum(thread, sum[half], 1, 4);
  }
};

// A block for each 64 rows of every head. `tiles`: those kept in shared memory.
[[nodiscard]] constexpr LaunchGrid entmax_grid(int64_t b, int64_t h, int64_t rows, int width, int tiles) {
  const int64_t floats = int64_t{tiles} * kAttentionTile * shared_stride(width) + TileDraws::kFloats;
  return {b * h * tiles_of(rows), (floats + 2 * kAttentionTile + kTileThreads / kWarp) * 4};
}

template <ProductKind kKind, int kWidth>
struct EntmaxAttentionForwardProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2;
  static constexpr int kTiles = kEntmaxPart / kTileColumns, kOutTiles = kWidth / kTileColumns;
  EntmaxArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kWidth);
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows q{memory, kStride}, k{memory + kAttentionTile * kStride, kStride},
        v{memory + 2 * kAttentionTile * kStride, kStride};
    float* const drawn = memory + 3 * kAttentionTile * kStride;
    auto* const ends = reinterpret_cast<int*>(drawn + TileDraws::kFloats);
    const HeadBlock block = head_block(a.h, thread.block(), a.n);
    const EntmaxHead head(a, block.h);
    const bool* const key_valid = a.key_valid == nullptr ? nullptr : a.key_valid + block.b * a.m;
    const bool* const query_valid = a.query_valid == nullptr ? nullptr : a.query_valid + block.b * a.n;
    int64_t end = valid_end(thread, key_valid, a.m, ends);
    if (block.first >= valid_end(thread, query_valid, a.n, ends)) end = 0;
    if (a.causal && end > block.first + kAttentionTile + a.ahead()) end = block.first + kAttentionTile + a.ahead();
    const float* const keys = at_head<float>(a.k, a.k_places, block);
    const float* const values = at_head<float>(a.v, a.v_places, block);
    load_tile<kWidth>(thread, at_head<float>(a.q, a.q_places, block), a.q_places, a.d, block.first, a.n, query_valid,
                      q);
    const FragmentPlace place(thread);
    const int warp_row = thread.index() / kWarp * kTileRows;
    const TileDraws draws(a.drop, drawn);
    EntmaxRows rows;
    float out[kOutTiles][4] = {};
    bool last = false;
    for (int walk = 0;; ++walk) {
      for (int64_t key = 0; key < end; key += kAttentionTile) {
        thread.sync();
        load_tile<kWidth>(thread, keys, a.k_places, a.d, key, end, key_valid, k);
        if (last) {
          load_tile<kWidth>(thread, values, a.v_places, a.e, key, end, key_valid, v);
          draws.draw(thread, [&](int row) { return weight_place(a, block, block.first + row, key); });
        }
        thread.sync();
        for (int part = 0; part < kAttentionTile && key + part < end; part += kEntmaxPart) {
          float score[kTiles][4] = {};
          multiply_rows<kKind, kWidth, kTiles>(thread, q, warp_row, {k.at(part), kStride}, score);
          const auto x_of = [&](int j, int i) {
            const int64_t own = key + part + j * kTileColumns + 2 * place.pair + i % 2;
            const int64_t query = block.first + warp_row + place.row + (i >= 2 ? 8 : 0);
            const bool seen =
                own < end && (key_valid == nullptr || key_valid[own]) && !(a.causal && own > query + a.ahead());
            return seen ? score[j][i] * head.factor - (walk == 0 ? 0.0f : rows.threshold[i / 2]) : -kNoThreshold;
          };
          if (walk == 0) rows.template raise<kTiles>(x_of);
          if (walk == 0 || !any_weight<kTiles>(thread, x_of)) continue;
          rows.template weigh<kTiles>(thread, head, x_of, score);
          if (!last) continue;
          XFORMER_UNROLL
          for (int j = 0; j < kTiles; ++j) {
            XFORMER_UNROLL
            for (int i = 0; i < 4; ++i)
              score[j][i] *= draws.factor(warp_row + place.row + (i >= 2 ? 8 : 0),
                                          part + j * kTileColumns + 2 * place.pair + i % 2);
          }
          multiply_weights<kKind, kTiles, kOutTiles>(thread, score, {v.at(part), kStride}, out);
        }
      }
      if (last) break;
      bool more = false;
      XFORMER_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t own = block.first + warp_row + place.row + 8 * half;
        const bool counts = own < a.n && (query_valid == nullptr || query_valid[own]);
        const bool again = walk == 0 ? rows.begin(thread, half, counts) : rows.step(thread, head, half);
        more = more || again;
      }
      last = !any_of_block(thread, more && walk < kMostEntmaxSteps, ends);
    }
    float inverse[2];
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float all = rows.total(thread, half);
      inverse[half] = all > 0 ? 1 / all : 0.0f;
      const int64_t own = block.first + warp_row + place.row + 8 * half;
      if (own < a.n && place.pair == 0) a.log_sum[(block.b * a.h + block.h) * a.n + own] = rows.threshold[half];
    }
    store_fragment<kOutTiles>(thread, out, inverse[0], inverse[1],
                              static_cast<float*>(a.out) + (block.b * a.n * a.h + block.h) * a.e, a.h * a.e, a.e,
                              block.first + warp_row, a.n);
  }
};

}  // namespace xformer::kernels
