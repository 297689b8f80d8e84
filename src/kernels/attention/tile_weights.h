// The weights of attention in a tile of 64 queries by 64 keys: which of them count, which are dropped, softmax on the
// way and its gradient (Dao et al., "FlashAttention", 2022, algorithms 1 and 4). What is true of a weight is a bit of a
// row's 64, so that a lane asks for its own without a branch. Exponentials are of base 2, and factors that are the
// same for all weights (the scale of dq and dk, the survivors' scale) are left to the sums.
#pragma once

#include <cmath>

#include "kernels/device/tile.h"

namespace xformer::kernels {

inline constexpr float kLog2E = 1.44269504088896340736f;

// One bit for each of 32 columns of a tile's row, as the lane reads them: in its fragment of a product, element i (0,
// 1) of tile j is column 8 j + 2 t + i.
class RowBits {
 public:
  RowBits() = default;
  XFORMER_DEVICE RowBits(const FragmentPlace& place, uint32_t columns) : own_(columns >> (2 * place.pair)) {}
  [[nodiscard]] XFORMER_DEVICE bool at(int j, int i) const { return (own_ >> (j * kTileColumns + i) & 1) != 0; }
  // Of the tiles from `tile` on, of those of `next` behind the fourth.
  [[nodiscard]] XFORMER_DEVICE RowBits from(int tile, const RowBits& next) const {
    RowBits result;
    result.own_ = (tile < kTiles ? own_ : next.own_) >> (tile % kTiles * kTileColumns);
    return result;
  }
  static constexpr int kTiles = 4;

 private:
  uint32_t own_ = 0;
};

// The first `count` columns of a row, or those behind; any count.
[[nodiscard]] XFORMER_DEVICE uint64_t columns_before(int64_t count) {
  return count <= 0 ? 0 : count >= kTileSide ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Which of a tile's keys are there and valid (null: all are): `first` and the end are the keys' numbers.
template <class Thread>
XFORMER_DEVICE uint64_t seen_keys(const Thread& thread, const bool* valid, int64_t first, int64_t end) {
  if (valid == nullptr) return columns_before(end - first);
  const int lane = thread.index() % kWarp;
  const auto counts = [&](int64_t key) { return key < end && valid[key]; };
  const uint32_t low = thread.ballot(counts(first + lane)), high = thread.ballot(counts(first + kWarp + lane));
  return static_cast<uint64_t>(high) << kWarp | low;
}

// Which weights of a tile dropout keeps, in shared memory: a bit for each of 64 queries and 64 keys. First come words
// of the keys 0 to 31, one for each query, then those of the others.
class TileKept {
 public:
  static constexpr int kWords = 2 * kTileSide;

  XFORMER_DEVICE explicit TileKept(uint32_t* words) : words_(words) {}

  // Of a tile, between two barriers. `first`: the place among all weights of the tile's first; across: keys in a row.
  template <class Thread>
  XFORMER_DEVICE void draw(const Thread& thread, const DeviceDraws& draws, int64_t first, int64_t across) const {
    // Not known to be the same for all tiles: what is made of it would take registers while products are made.
    const int own = thread.anew(thread.index()), query = own / kRuns, run = own % kRuns;
    const int64_t number = draws.first + first;
    if (number % kRun == 0 && across % kRun == 0) {  // whole runs of draws, as most tiles have them
      const int64_t row = across / kRun, block = number / kRun + query * row + run;
      PhiloxBlock drawn[kTurns];
      XFORMER_UNROLL
      for (int turn = 0; turn < kTurns; ++turn)
        drawn[turn] = philox(draws.key, static_cast<uint64_t>(block + turn * kTurnRows * row), draws.high);
      XFORMER_UNROLL
      for (int turn = 0; turn < kTurns; ++turn)
        keep(draws.threshold, query + turn * kTurnRows, run,
             {drawn[turn][0], drawn[turn][1], drawn[turn][2], drawn[turn][3]});
      return;
    }
    XFORMER_UNROLL_NEVER
    for (int turn = 0; turn < kTurns; ++turn) {
      uint32_t drawn[4];
      draws.words(first + (query + turn * kTurnRows) * across + run * kRun, drawn);
      keep(draws.threshold, query + turn * kTurnRows, run, drawn);
    }
  }
  // All of them are kept.
  template <class Thread>
  XFORMER_DEVICE void keep_all(const Thread& thread) const {
    words_[thread.index()] = ~uint32_t{0};
  }
  static_assert(kWords == kTileThreads);

  // Of a query 32 keys, the first or the other ones.
  [[nodiscard]] XFORMER_DEVICE uint32_t row(int query, int half) const { return words_[half * kTileSide + query]; }
  // Those of two neighbouring queries.
  XFORMER_DEVICE void rows(int query, int half, uint32_t (&two)[2]) const {
    memcpy(two, words_ + half * kTileSide + query, sizeof(two));
  }
  [[nodiscard]] XFORMER_DEVICE uint32_t* words() const { return words_; }

 private:
  static constexpr int kRuns = kTileSide / kRun, kTurns = kTileSide * kRuns / kTileThreads,
                       kTurnRows = kTileThreads / kRuns;
  XFORMER_DEVICE void keep(uint32_t drop_below, int query, int run, const uint32_t (&drawn)[4]) const {
    const uint32_t threshold = drop_below << 16;
    uint32_t bits = 0;
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) bits |= (i % 2 == 1 ? drawn[i / 2] : drawn[i / 2] << 16) >= threshold ? 1u << i : 0u;
    reinterpret_cast<uint8_t*>(words_ + run / 4 * kTileSide + query)[run % 4] = static_cast<uint8_t>(bits);
  }

  uint32_t* words_;
};

// What a survivor is multiplied with.
[[nodiscard]] XFORMER_DEVICE float survivors_scale(const DeviceDrop& drop) {
  return drop.threshold == 0 ? 1.0f : 65536.0f / static_cast<float>(65536 - drop.threshold);
}

// Weights are this power of two too large, so that small ones keep their bits in 16 of them.
inline constexpr int kWeightExponent = 14;

// A warp's sixteen rows over the tiles so far: sums of 2^(score - largest), with values and without. `half` counts the
// rows g and g + 8.
template <int kOutTiles>
struct WeightRows {
  float out[kOutTiles][4] = {}, largest[2], sum[2] = {};

  XFORMER_DEVICE WeightRows() { largest[0] = largest[1] = -static_cast<float>(INFINITY); }

  // A tile's products become exponentials times 2^kWeightExponent, 0 where they are dropped; what came before is scaled
  // to the same largest score. `scale`, which is positive, turns products to logits of base 2; `whole`: all weights
  // count, in all lanes.
  template <int kTiles, class Thread>
  XFORMER_DEVICE void weigh(const Thread& thread, float scale, bool whole, const RowBits (&seen)[2],
                            const RowBits (&kept)[2], float (*scores)[4]) {
    constexpr float kNever = -INFINITY;
    if (!whole) {
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) scores[j][i] = seen[i / 2].at(j, i % 2) ? scores[j][i] : kNever;
      }
    }
    // Halves side by side, so that what one waits for is work for the other.
    float now[2] = {kNever, kNever}, shift[2], factor[2];
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      XFORMER_UNROLL
      for (int half = 0; half < 2; ++half)
        now[half] = larger_of(now[half], larger_of(scores[j][2 * half], scores[j][2 * half + 1]));
    }
    XFORMER_UNROLL
    for (int mask = 1; mask < 4; mask *= 2) {
      XFORMER_UNROLL
      for (int half = 0; half < 2; ++half) now[half] = larger_of(now[half], thread.shuffle_xor(now[half], mask));
    }
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      now[half] = larger_of(largest[half], now[half] * scale);
      const float base = now[half] == kNever ? 0.0f : now[half];
      factor[half] = thread.exp2(largest[half] - base);
      shift[half] = kWeightExponent - base;
      largest[half] = now[half];
    }
    if (thread.ballot(factor[0] != 1 || factor[1] != 1) != 0) {  // rarely, behind the first tiles
      XFORMER_UNROLL
      for (int j = 0; j < kOutTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) out[j][i] *= factor[i / 2];
      }
      sum[0] *= factor[0], sum[1] *= factor[1];
    }
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float weight = thread.exp2(scores[j][i] * scale + shift[i / 2]);
        sum[i / 2] += weight;
        scores[j][i] = kept[i / 2].at(j, i % 2) ? weight : 0.0f;
      }
    }
  }

  // Of a row: what its `out` is to be multiplied with, and the log of its sum; 0 and infinity without a key.
  struct Total {
    float inverse, log_sum;
  };
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE Total total(const Thread& thread, int half) const {
    const float all = lane_sum(thread, sum[half], 1, 4);
    if (all <= 0) return {0, static_cast<float>(INFINITY)};
    return {1 / all, (largest[half] - kWeightExponent) / kLog2E + std::log(all)};
  }
};

// What the gradient of a weight needs of its query: kWeightExponent less the log of its sum of weights, of base 2, and
// delta in the units of `slope` below.
struct QueryNumbers {
  float shift, delta;
};

// From a tile's products q k^T and dO v^T, of queries by keys or, with kKeys, of keys by queries: with P the weights
// times 2^kWeightExponent and D their dropout without the survivors' scale, D P in `weight` and P (gradient_scale D dO
// v^T - delta) in `slope`. of_query(half or tile, into): the numbers of a lane's row, or of its two columns; kept(tile)
// says of a half and a column of the tile whether dropout keeps the weight.
template <bool kKeys, int kTiles, class Thread, class OfQuery, class Kept>
XFORMER_DEVICE void weight_gradient(const Thread& thread, float scale, float gradient_scale, bool whole,
                                    const RowBits (&seen)[2], const OfQuery& of_query, const Kept& kept,
                                    float (*weight)[4], float (*slope)[4]) {
  XFORMER_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    QueryNumbers numbers[2];
    if constexpr (kKeys) of_query(j, numbers);
    const auto kept_here = kept(j);
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (!kKeys) of_query(i / 2, numbers);
      const QueryNumbers& of = numbers[kKeys ? i % 2 : 0];
      float p = thread.exp2(weight[j][i] * scale + of.shift);
      if (!whole) p = seen[i / 2].at(j, i % 2) ? p : 0.0f;
      const bool keeps = kept_here(i / 2, i % 2);
      weight[j][i] = keeps ? p : 0.0f;
      slope[j][i] = p * ((keeps ? slope[j][i] : 0.0f) * gradient_scale - of.delta);
    }
  }
}

}  // namespace xformer::kernels
