// Rows of attention weights backwards by AVX-512: the loops of weight_rows.cpp by hand, to the same bits in float, and
// those that leave numbers rounded as products of bf16 take them.
#include "kernels/attention/weight_lanes_512.h"

#include <algorithm>

#ifdef XFORMER_BY_512

namespace xformer::kernels::by_512 {

namespace {

// p (drop(gradient) - delta) slope, p being the weights before dropout.
template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 slope_of(const __m512& p, const float* gradient, __mmask16 lanes,
                                                             __mmask16 kept, const WeightRow& row, const __m512& delta,
                                                             const __m512& slope) {
  const __m512 given = _mm512_maskz_loadu_ps(lanes, gradient);
  const __m512 step =
      kDrops ? _mm512_fmsub_ps(given, _mm512_maskz_mov_ps(kept, row.keep), delta) : _mm512_sub_ps(given, delta);
  return _mm512_mul_ps(_mm512_mul_ps(slope, p), step);
}

template <bool kDrops, bool kWhole>
XFORMER_BY_512 [[gnu::always_inline]] inline void gradient_step(float* scores, float* gradient, __mmask16 lanes,
                                                                int64_t i, const WeightRow& row, const __m512& delta,
                                                                const __m512& slope) {
  const __m512 p = undropped(row, scores + i, lanes);
  const __mmask16 stays = kept<kDrops>(row, i, lanes);
  const __m512 to = slope_of<kDrops>(p, gradient + i, lanes, stays, row, delta, slope);
  const __m512 weight = kDrops ? _mm512_maskz_mul_ps(stays, p, row.keep) : p;
  if constexpr (kWhole) {
    _mm512_storeu_ps(scores + i, weight);
    _mm512_storeu_ps(gradient + i, to);
  } else {
    _mm512_mask_storeu_ps(scores + i, lanes, weight);
    _mm512_mask_storeu_ps(gradient + i, lanes, to);
  }
}

template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline void float_gradients(float* scores, float* gradient, int64_t count,
                                                                  const WeightRow& row, float delta, float slope) {
  const __m512 deltas = _mm512_set1_ps(delta), slopes = _mm512_set1_ps(slope);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) gradient_step<kDrops, true>(scores, gradient, kAllLanes, i, row, deltas, slopes);
  if (i < count) gradient_step<kDrops, false>(scores, gradient, lanes_of(count - i), i, row, deltas, slopes);
}

}  // namespace

XFORMER_BY_512 void row_gradients(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights,
                                  float delta, float slope) {
  const WeightRow row = row_of(weights);
  weights.draws == nullptr ? float_gradients<false>(scores, gradient, count, row, delta, slope)
                           : float_gradients<true>(scores, gradient, count, row, delta, slope);
}

namespace {

template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline void slopes_of(const SlopeTile<float>& tile) {
  WeightRow row = row_of({tile.factor, 0, nullptr, tile.threshold, tile.keep});
  for (int64_t r = 0; r < tile.rows; ++r) {
    float *const scores = tile.scores + r * tile.stride, *const gradient = tile.gradient + r * tile.stride;
    close_beside(tile.spans[r], scores);
    const RowSpan span = tile.spans[r].steps();
    row.shift = _mm512_set1_ps(tile.shift[r]);
    if (kDrops) row.draws = tile.draws[r] + span.begin;
    float_gradients<kDrops>(scores + span.begin, gradient + span.begin, span.end - span.begin, row, tile.delta[r], 1);
    zero_beside(span, tile.count, scores);
    zero_beside(span, tile.count, gradient);
  }
}

}  // namespace

XFORMER_BY_512 void slope_tile(const SlopeTile<float>& tile) {
  tile.draws[0] == nullptr ? slopes_of<false>(tile) : slopes_of<true>(tile);
}

namespace {

// A pair of rows with what all their numbers have in common.
struct Pair {
  WeightRow row[2];
  __m512 delta[2], slope;
  __mmask16 counts[2];
  const float *scores[2], *gradient[2];
  c10::BFloat16* to[2];
  __m512i turns;
};

// Numbers i .. i + 15, or of them the lanes that are there.
template <bool kDrops, bool kWhole>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void step_of(const Pair& pair, int64_t i, __mmask16 lanes,
                                                               uint32_t* to_weights, uint32_t* to_gradients) {
  __m512 weight[2], step[2];
  for (int k = 0; k < 2; ++k) {
    const auto there = kWhole ? kAllLanes : static_cast<__mmask16>(lanes & pair.counts[k]);
    const WeightRow& row = pair.row[k];
    const __m512 p = undropped(row, pair.scores[k] + i, there);
    const __mmask16 stays = kept<kDrops>(row, i, there);
    weight[k] = kDrops || !kWhole ? _mm512_maskz_mul_ps(stays, p, row.keep) : p;
    step[k] = slope_of<kDrops>(p, pair.gradient[k] + i, there, stays, row, pair.delta[k], pair.slope);
    if (!kWhole) step[k] = _mm512_maskz_mov_ps(there, step[k]);
  }
  const auto weights = (__m512i)_mm512_cvtne2ps_pbh(weight[1], weight[0]),
             steps = (__m512i)_mm512_cvtne2ps_pbh(step[1], step[0]);
  _mm512_storeu_si512(to_weights, _mm512_permutexvar_epi16(pair.turns, weights));
  _mm512_storeu_si512(to_gradients, _mm512_permutexvar_epi16(pair.turns, steps));
  const __m256i first = _mm512_castsi512_si256(steps), second = _mm512_extracti64x4_epi64(steps, 1);
  if constexpr (kWhole) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pair.to[0] + i), first);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pair.to[1] + i), second);
  } else {
    _mm256_mask_storeu_epi16(pair.to[0] + i, lanes, first);
    if (pair.to[1] != nullptr) _mm256_mask_storeu_epi16(pair.to[1] + i, lanes, second);
  }
}

// Rows r and r + 1, of which the second may not be there.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void take_pair(const GradientTile& tile, int64_t r, Pair& pair) {
  for (int64_t k = 0; k < 2; ++k) {
    const bool there = r + k < tile.rows;
    const GradientTile::Row& given = tile.row[there ? r + k : r];
    pair.row[k].shift = _mm512_set1_ps(given.shift);
    pair.row[k].draws = given.draws;
    pair.delta[k] = _mm512_set1_ps(given.delta);
    pair.counts[k] = there && given.counts ? kAllLanes : __mmask16{0};
    pair.scores[k] = given.scores, pair.gradient[k] = given.gradient;
    pair.to[k] = there ? tile.to + (r + k) * tile.to_stride : nullptr;
  }
}

template <bool kDrops>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void gradients_of(const GradientTile& tile, PairedFactor& weights,
                                                                    PairedFactor& gradients) {
  Pair pair;
  pair.turns = turns_of_pairs();
  pair.slope = _mm512_set1_ps(tile.slope);
  pair.row[0] = pair.row[1] = row_of({tile.factor, 0, nullptr, tile.threshold, tile.keep});
  for (int64_t k = 0, rows = 0; k < tile.rows; k += rows) {
    rows = weights.piece_rows(k);
    for (int64_t r = k; r < std::min(k + rows, tile.rows); r += 2) {
      take_pair(tile, r, pair);
      const bool whole = (pair.counts[0] & pair.counts[1]) == kAllLanes;
      for (int64_t first = 0, width = 0; first < tile.count; first += width) {
        width = PairedFactor::panel_width(tile.count - first);
        const int64_t place = (r - k) / 2 * PairedFactor::line_of(width);
        uint32_t *const to_weights = weights.panel(k, rows, first) + place, *const to_gradients =
                                                                                gradients.panel(k, rows, first) + place;
        int64_t i = 0;
        for (; whole && i + 16 <= width; i += 16)
          step_of<kDrops, true>(pair, first + i, kAllLanes, to_weights + i, to_gradients + i);
        for (; i < width; i += 16)
          step_of<kDrops, false>(pair, first + i, lanes_of(width - i), to_weights + i, to_gradients + i);
      }
    }
  }
}

}  // namespace

XFORMER_BY_BF16_512 void tile_gradients(const GradientTile& tile, PairedFactor& weights, PairedFactor& gradients) {
  const bool drops = std::any_of(tile.row, tile.row + tile.rows, [](const auto& row) { return row.draws != nullptr; });
  drops ? gradients_of<true>(tile, weights, gradients) : gradients_of<false>(tile, weights, gradients);
}

}  // namespace xformer::kernels::by_512

#else

namespace xformer::kernels::by_512 {

// For the linker: no product takes pairs here.
void tile_gradients(const GradientTile&, PairedFactor&, PairedFactor&) {}

}  // namespace xformer::kernels::by_512

#endif
