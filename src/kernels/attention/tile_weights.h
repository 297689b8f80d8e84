// The weights of attention in a tile of 64 queries by 64 keys: which of them count, which are dropped, softmax on the
// way and its gradient (Dao et al., "FlashAttention", 2022, algorithms 1 and 4). What is true of a weight is a bit of a
// row's 64, so that a lane asks for its own without a branch. Exponentials are of base 2, and factors that are the
// same for all weights (the scale of dq and dk, the survivors' scale) are left to the sums.
#pragma once

#include <cmath>

#include "kernels/device/tile.h"

namespace xformer::kernels {

inline constexpr float kLog2E = 1.44269504088896340736f;

// One bit for each column of a tile's row, as the lane reads them: in its fragment of a product, element i (0, 1) of
// tile j is column 8 j + 2 t + i.
class RowBits {
 public:
  RowBits() = default;
  XFORMER_DEVICE RowBits(const FragmentPlace& place, uint64_t columns) {
    const uint64_t own = columns >> (2 * place.pair);
    low_ = static_cast<uint32_t>(own), high_ = static_cast<uint32_t>(own >> 32);
  }
  [[nodiscard]] XFORMER_DEVICE bool at(int j, int i) const {
    return ((j < 4 ? low_ : high_) >> (j % 4 * kTileColumns + i) & 1) != 0;
  }

 private:
  uint32_t low_ = 0, high_ = 0;
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

// Which weights of a tile dropout keeps, in shared memory: 64 bits for each query, of the keys, or with kKeys for each
// key, of the queries; kRowTiles times 64 rows of them.
template <bool kKeys, int kRowTiles>
class TileKept {
 public:
  static constexpr int kFloats = 2 * kTileSide * kRowTiles;

  // `across`: keys in a row of all weights. The drop outlives this.
  XFORMER_DEVICE TileKept(const DeviceDrop& drop, int64_t across, float* memory)
      : drop_(drop), across_(across), memory_(reinterpret_cast<uint32_t*>(memory)) {}

  // What a survivor is multiplied with.
  [[nodiscard]] XFORMER_DEVICE float scale() const {
    return drop_.threshold == 0 ? 1.0f : 65536.0f / static_cast<float>(65536 - drop_.threshold);
  }

  // Between two barriers. `first`: the place among all weights of the tile's first.
  template <class Thread>
  XFORMER_DEVICE void draw(const Thread& thread, int64_t first) const {
    if (drop_.threshold == 0) return;
    const DeviceDraws draws(drop_);  // made for each tile: registers are short while products are made
    const int64_t number = draws.first + first;
    if (number % kRun == 0 && across_ % kRun == 0) {  // whole runs of draws, as most tiles have them
      XFORMER_UNROLL_NEVER
      for (int turn = 0; turn < kTurns; turn += kAtOnce) {
        PhiloxBlock drawn[kAtOnce];
        XFORMER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const auto [query, run] = place_of(thread, turn + i);
          drawn[i] =
              philox(draws.key, static_cast<uint64_t>(number / kRun + query * (across_ / kRun) + run), draws.high);
        }
        XFORMER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const auto [query, run] = place_of(thread, turn + i);
          keep(thread, query, run, {drawn[i][0], drawn[i][1], drawn[i][2], drawn[i][3]});
        }
      }
      return;
    }
    XFORMER_UNROLL_NEVER
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto [query, run] = place_of(thread, turn);
      uint32_t words[4];
      draws.words(first + query * across_ + run * kRun, words);
      keep(thread, query, run, words);
    }
  }

  // Of a row of the tile.
  [[nodiscard]] XFORMER_DEVICE RowBits row(const FragmentPlace& place, int row) const {
    if (drop_.threshold == 0) return {place, ~uint64_t{0}};
    uint64_t all;
    memcpy(&all, memory_ + 2 * row, sizeof(all));
    return {place, all};
  }

 private:
  static constexpr int kRuns = kTileSide / kRun, kTurns = kRowTiles * kTileSide * kRuns / kTileThreads;
  static constexpr int kAtOnce = kRowTiles > 1 ? 4 : 1;  // registers are short where blocks are many
  struct Run {
    int query, run;  // of eight keys
  };
  // What a thread draws in its turns. A warp has 32 queries and a run of keys where bits of neighbouring queries belong
  // together.
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE static Run place_of(const Thread& thread, int turn) {
    const int at = turn * kTileThreads + thread.index();
    if constexpr (kKeys) return {at % kTileSide, at / kTileSide};
    return {at / kRuns, at % kRuns};
  }
  template <class Thread>
  XFORMER_DEVICE void keep(const Thread& thread, int query, int run, const uint32_t (&words)[4]) const {
    const uint32_t threshold = drop_.threshold << 16;
    bool kept[kRun];
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) kept[i] = (i % 2 == 1 ? words[i / 2] : words[i / 2] << 16) >= threshold;
    if constexpr (kKeys) {
      const int lane = thread.index() % kWarp;
      uint32_t own = 0;
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) {
        const uint32_t all = thread.ballot(kept[i]);
        own = lane == i ? all : own;
      }
      if (lane < kRun) memory_[2 * (run * kRun + lane) + query / kWarp] = own;
    } else {
      uint32_t bits = 0;
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) bits |= kept[i] ? 1u << i : 0u;
      reinterpret_cast<uint8_t*>(memory_)[query * kRuns + run] = static_cast<uint8_t>(bits);
    }
  }

  const DeviceDrop& drop_;
  int64_t across_;
  uint32_t* memory_;
};

// Rows of a warp over the tiles so far: sums of 2^(score - largest), with values and without. `half` counts the rows
// g and g + 8 of each sixteen.
template <int kOutTiles, int kRowTiles>
struct WeightRows {
  static constexpr int kHalves = 2 * kRowTiles;
  float out[kRowTiles * kOutTiles][4] = {}, largest[kHalves], sum[kHalves];

  XFORMER_DEVICE WeightRows() {
    XFORMER_UNROLL
    for (int half = 0; half < kHalves; ++half) largest[half] = -static_cast<float>(INFINITY), sum[half] = 0;
  }

  // A tile's products become exponentials, 0 where they are dropped; what came before is scaled to the same largest
  // score. `scale` turns products to logits of base 2; `whole`: all weights count, in all lanes.
  template <int kTiles, class Thread>
  XFORMER_DEVICE void weigh(const Thread& thread, float scale, bool whole, const RowBits (&seen)[kHalves],
                            const RowBits (&kept)[kHalves], float (*scores)[4]) {
    constexpr float kNever = -INFINITY;
    XFORMER_UNROLL
    for (int j = 0; j < kRowTiles * kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) scores[j][i] *= scale;
    }
    if (!whole) {
      XFORMER_UNROLL
      for (int j = 0; j < kRowTiles * kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i)
          scores[j][i] = seen[j / kTiles * 2 + i / 2].at(j % kTiles, i % 2) ? scores[j][i] : kNever;
      }
    }
    // Halves side by side, so that what one waits for is work for the others.
    float now[kHalves], shift[kHalves];
    XFORMER_UNROLL
    for (int half = 0; half < kHalves; ++half) now[half] = largest[half];
    const auto for_pairs = [&](const auto& visit) {  // of a row's neighbouring columns
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int half = 0; half < kHalves; ++half) visit(half, j, scores[half / 2 * kTiles + j] + half % 2 * 2);
      }
    };
    for_pairs([&](int half, int, const float* pair) {
      const float larger = pair[1] > pair[0] ? pair[1] : pair[0];
      now[half] = larger > now[half] ? larger : now[half];
    });
    XFORMER_UNROLL
    for (int mask = 1; mask < 4; mask *= 2) {
      XFORMER_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        const float other = thread.shuffle_xor(now[half], mask);
        now[half] = other > now[half] ? other : now[half];
      }
    }
    XFORMER_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      shift[half] = now[half] == kNever ? 0.0f : now[half];
      const float factor = thread.exp2(largest[half] - shift[half]);
      largest[half] = now[half];
      sum[half] *= factor;
      XFORMER_UNROLL
      for (int j = 0; j < kOutTiles; ++j) {
        float* const own = out[half / 2 * kOutTiles + j] + half % 2 * 2;
        own[0] *= factor, own[1] *= factor;
      }
    }
    for_pairs([&](int half, int j, float* pair) {
      const float first = thread.exp2(pair[0] - shift[half]), second = thread.exp2(pair[1] - shift[half]);
      sum[half] += first + second;
      pair[0] = kept[half].at(j, 0) ? first : 0.0f, pair[1] = kept[half].at(j, 1) ? second : 0.0f;
    });
  }

  // Of a row: what its `out` is to be multiplied with, and the log of its sum; 0 and infinity without a key.
  struct Total {
    float inverse, log_sum;
  };
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE Total total(const Thread& thread, int half) const {
    const float all = lane_sum(thread, sum[half], 1, 4);
    if (all <= 0) return {0, static_cast<float>(INFINITY)};
    return {1 / all, largest[half] / kLog2E + std::log(all)};
  }
};

// What the gradient of a weight needs of its query: the log of its sum of weights, of base 2, and delta.
struct QueryNumbers {
  float log_sum, delta;
};

// From a tile's products q k^T and dO v^T, of queries by keys or, with kKeys, of keys by queries: with P the weights
// and D their dropout without the survivors' scale, D P in `weight` and P (scale D dO v^T - delta) in `slope`.
// `tile`: the number of the first of these tiles of columns in the row; of_query(half or tile, into): the numbers of a
// lane's row, or of its two columns.
template <bool kKeys, int kTiles, int kRowTiles, class Thread, class OfQuery>
XFORMER_DEVICE void weight_gradient(const Thread& thread, int tile, float scale, float kept_scale, bool whole,
                                    const RowBits (&seen)[2 * kRowTiles], const RowBits (&kept)[2 * kRowTiles],
                                    const OfQuery& of_query, float (*weight)[4], float (*slope)[4]) {
  XFORMER_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    QueryNumbers numbers[2];
    if constexpr (kKeys) of_query(tile + j, numbers);
    XFORMER_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      float *const weights = weight[r * kTiles + j], *const slopes = slope[r * kTiles + j];
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int half = 2 * r + i / 2;
        if constexpr (!kKeys) of_query(half, numbers);
        const QueryNumbers& of = numbers[kKeys ? i % 2 : 0];
        float p = thread.exp2(weights[i] * scale - of.log_sum);
        if (!whole) p = seen[half].at(tile + j, i % 2) ? p : 0.0f;
        const bool keeps = kept[half].at(tile + j, i % 2);
        weights[i] = keeps ? p : 0.0f;
        slopes[i] = p * ((keeps ? slopes[i] : 0.0f) * kept_scale - of.delta);
      }
    }
  }
}

}  // namespace xformer::kernels
