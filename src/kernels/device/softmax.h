// Softmax over keys that come in tiles of 64, with dropout of its weights, and its gradient (Dao et al.,
// "FlashAttention", 2022, algorithms 1 and 4): what a block's warps do with the products of their 16 rows each and a
// tile. Sums are in float.
#pragma once

#include <cmath>

#include "kernels/device/tile.h"

namespace xformer::kernels {

// The draws of a tile of 64 queries by 64 keys in shared memory, 16 bits each: a thread draws those of eight
// neighbouring keys at a time, whichever way the tile is read afterwards.
class TileDraws {
 public:
  static constexpr int kStride = kTileSide + 8;  // of a query's row, so that lanes read from different banks
  static constexpr int kFloats = kTileSide * kStride / 2;

  XFORMER_DEVICE TileDraws(const DeviceDrop& drop, float* memory)
      : draws_(drop),
        memory_(reinterpret_cast<uint16_t*>(memory)),
        scale_(draws_.threshold == 0 ? 1.0f : static_cast<float>(dropout_scale(draws_.threshold))) {}

  // Between two barriers. element_of(row): the place among all weights of that of a query and the tile's first key.
  template <class Thread, class ElementOf>
  XFORMER_DEVICE void draw(const Thread& thread, const ElementOf& element_of) const {
    if (draws_.threshold == 0) return;
    constexpr int kRuns = kTileSide / kRun;
    for (int i = thread.index(); i < kTileSide * kRuns; i += kTileThreads) {
      const int row = i / kRuns, column = i % kRuns * kRun;
      uint32_t words[4];
      draws_.words(element_of(row) + column, words);
      memcpy(memory_ + row * kStride + column, words, sizeof(words));
    }
  }

  // 0 for a weight that is dropped, else the survivors' scale.
  [[nodiscard]] XFORMER_DEVICE float factor(int query, int key) const {
    if (draws_.threshold == 0) return 1;
    return memory_[query * kStride + key] < draws_.threshold ? 0.0f : scale_;
  }

 private:
  DeviceDraws draws_;
  uint16_t* memory_;
  float scale_;
};

// The logit of a product: scaled where its key is seen, or scaled with what its key gains, which is -infinity where it
// is not seen.
XFORMER_DEVICE float logit(bool seen, float product, float scale) {
  return seen ? product * scale : -static_cast<float>(INFINITY);
}
XFORMER_DEVICE float logit(float gain, float product, float scale) { return (product + gain) * scale; }

// Rows of a warp over the tiles so far: sums of exp(score - largest), with values and without.
template <int kOutTiles>
struct SoftmaxRows {
  float out[kOutTiles][4] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // A tile's products become exponentials, times their dropout; what came before is scaled to the same largest score.
  // `first`: the warp's first row in its block; seen(row, column), both of the tile, as logit() takes it.
  template <int kTiles, class Thread, class Seen>
  XFORMER_DEVICE void weigh(const Thread& thread, float scale, const TileDraws& draws, int first, const Seen& seen,
                            float (*score)[4]) {
    constexpr float kNever = -INFINITY;
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first + place.row + 8 * half;
      float now = largest[half];
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[j][i] = logit(seen(row, j * kTileColumns + 2 * place.pair + i % 2), score[j][i], scale);
          now = score[j][i] > now ? score[j][i] : now;
        }
      }
      XFORMER_UNROLL
      for (int mask = 1; mask < 4; mask *= 2) {
        const float other = thread.shuffle_xor(now, mask);
        now = other > now ? other : now;
      }
      const float shift = now == kNever ? 0.0f : now, factor = thread.exp(largest[half] - shift);
      largest[half] = now;
      sum[half] *= factor;
      XFORMER_UNROLL
      for (int j = 0; j < kOutTiles; ++j) out[j][2 * half] *= factor, out[j][2 * half + 1] *= factor;
      XFORMER_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const float weight = thread.exp(score[j][i] - shift);
          sum[half] += weight;
          score[j][i] = weight * draws.factor(row, j * kTileColumns + 2 * place.pair + i % 2);
        }
      }
    }
  }

  // Of row g + 8 half: what its `out` is to be multiplied with, and the log of its sum; 0 and infinity without a key.
  struct Total {
    float inverse, log_sum;
  };
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE Total total(const Thread& thread, int half) const {
    const float all = lane_sum(thread, sum[half], 1, 4);
    if (all <= 0) return {0, static_cast<float>(INFINITY)};
    return {1 / all, largest[half] + std::log(all)};
  }
};

// From a tile's products q k^T and dO v^T, of queries by keys or, with kKeys, of keys by queries: with P the weights
// and D their dropout, D P in `weight` and P (D dO v^T - delta) scale in `slope`. log_sum and delta are of the tile's
// queries; seen(query, key).
template <bool kKeys, int kTiles, class Thread, class Seen>
XFORMER_DEVICE void softmax_gradient(const Thread& thread, float scale, const TileDraws& draws, int first,
                                     const Seen& seen, const float* log_sum, const float* delta, float (*weight)[4],
                                     float (*slope)[4]) {
  const FragmentPlace place(thread);
  XFORMER_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = first + place.row + (i >= 2 ? 8 : 0), column = j * kTileColumns + 2 * place.pair + i % 2;
      const int query = kKeys ? column : row, key = kKeys ? row : column;
      const float p = thread.exp(logit(seen(query, key), weight[j][i], scale) - log_sum[query]);
      const float kept = draws.factor(query, key);
      weight[j][i] = p * kept;
      slope[j][i] = p * (slope[j][i] * kept - delta[query]) * scale;
    }
  }
}

}  // namespace xformer::kernels
