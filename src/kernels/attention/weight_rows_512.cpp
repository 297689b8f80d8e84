// Rows of attention weights by AVX-512: the loops of weight_rows.cpp by hand (kernels/cpu/lanes_512.h), to the same
// bits in float, and those that leave numbers rounded as products of bf16 take them.
#include "kernels/attention/weight_rows.h"

#include <algorithm>

#include "kernels/cpu/lanes_512.h"

#ifdef XFORMER_BY_512

namespace xformer::kernels::by_512 {

namespace {

// What all numbers of a row have in common.
struct Row {
  const uint16_t* draws;
  __m512 factor, shift, keep;
  __m256i threshold;
};

XFORMER_BY_512 [[gnu::always_inline]] inline Row row_of(const RowWeights<float>& weights) {
  return {weights.draws, _mm512_set1_ps(weights.factor), _mm512_set1_ps(weights.shift), _mm512_set1_ps(weights.keep),
          _mm256_set1_epi16(static_cast<int16_t>(weights.threshold))};
}

XFORMER_BY_512 [[gnu::always_inline]] inline __m512 undropped(const Row& row, const float* scores, __mmask16 lanes) {
  return exp2_by_512(_mm512_fmsub_ps(row.factor, _mm512_maskz_loadu_ps(lanes, scores), row.shift));
}

template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 kept(const Row& row, int64_t i, __mmask16 lanes) {
  if constexpr (kDrops) return kept_by_512(row.draws + i, row.threshold, lanes);
  else return lanes;
}

// The weights of scores i .. i + 15, which `sum` gains before dropout.
template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 weigh(const Row& row, const float* scores, int64_t i,
                                                          __mmask16 lanes, __m512& sum) {
  const __m512 p = undropped(row, scores + i, lanes);
  sum = _mm512_mask_add_ps(sum, lanes, sum, p);
  return kDrops ? _mm512_maskz_mul_ps(kept<kDrops>(row, i, lanes), p, row.keep) : p;
}

// The weights of a row. Returned are the lanes of their sum: in steps of four registers, then of one, as weights_of()
// sums them.
template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 float_weights(const float* scores, int64_t count, const Row& row,
                                                                  float* out) {
  __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  int64_t i = 0;
  for (; i + 64 <= count; i += 64)
    for (int64_t k = 0; k < 4; ++k)
      _mm512_storeu_ps(out + i + 16 * k, weigh<kDrops>(row, scores, i + 16 * k, kAllLanes, sums[k]));
  __m512 sum = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), sums[2]), sums[3]);
  for (; i + 16 <= count; i += 16) _mm512_storeu_ps(out + i, weigh<kDrops>(row, scores, i, kAllLanes, sum));
  if (const __mmask16 lanes = lanes_of(count - i); i < count)
    _mm512_mask_storeu_ps(out + i, lanes, weigh<kDrops>(row, scores, i, lanes, sum));
  return sum;
}

template <bool kDrops>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 bf16_weights(const float* scores, int64_t count,
                                                                      const Row& row, c10::BFloat16* out) {
  __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  int64_t i = 0;
  for (; i + 64 <= count; i += 64)
    for (int64_t k = 0; k < 4; k += 2) {
      const __m512 low = weigh<kDrops>(row, scores, i + 16 * k, kAllLanes, sums[k]),
                   high = weigh<kDrops>(row, scores, i + 16 * k + 16, kAllLanes, sums[k + 1]);
      _mm512_storeu_si512(out + i + 16 * k, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  __m512 sum = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), sums[2]), sums[3]);
  for (; i + 16 <= count; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        (__m256i)_mm512_cvtneps_pbh(weigh<kDrops>(row, scores, i, kAllLanes, sum)));
  if (const __mmask16 lanes = lanes_of(count - i); i < count)
    _mm256_mask_storeu_epi16(out + i, lanes, (__m256i)_mm512_cvtneps_pbh(weigh<kDrops>(row, scores, i, lanes, sum)));
  return sum;
}

// Of each lane the largest score.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 largest_of(const float* scores, int64_t count) {
  __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity()), others = most;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    most = _mm512_max_ps(most, _mm512_loadu_ps(scores + i));
    others = _mm512_max_ps(others, _mm512_loadu_ps(scores + i + 16));
  }
  for (; i < count; i += 16) most = _mm512_max_ps(most, _mm512_mask_loadu_ps(most, lanes_of(count - i), scores + i));
  return _mm512_max_ps(most, others);
}

template <bool kLargest>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 joined(const __m512& x, const __m512& y) {
  return kLargest ? _mm512_max_ps(x, y) : _mm512_add_ps(x, y);
}

// Sums over the lanes of each of four registers, or their largest numbers, in the order of _mm512_reduce_add_ps: lanes
// eight apart, then four, two and one.
template <bool kLargest>
XFORMER_BY_512 [[gnu::always_inline]] inline __m128 across(const __m512 (&x)[4]) {
  constexpr int kLow = 0x44, kHigh = 0xEE, kEven = 0x88, kOdd = 0xDD;
  const __m512 first =
                   joined<kLargest>(_mm512_shuffle_f32x4(x[0], x[1], kLow), _mm512_shuffle_f32x4(x[0], x[1], kHigh)),
               second =
                   joined<kLargest>(_mm512_shuffle_f32x4(x[2], x[3], kLow), _mm512_shuffle_f32x4(x[2], x[3], kHigh));
  const __m512 fours =
      joined<kLargest>(_mm512_shuffle_f32x4(first, second, kEven), _mm512_shuffle_f32x4(first, second, kOdd));
  const __m512 twos = joined<kLargest>(fours, _mm512_permute_ps(fours, _MM_PERM_BADC));
  const __m512 ones = joined<kLargest>(twos, _mm512_permute_ps(twos, _MM_PERM_CDAB));
  return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, ones));
}

// One row: its largest score, the shift of its exponents, and what is left of it with the sum of its weights.
XFORMER_BY_512 [[gnu::always_inline]] inline float begin_row(const WeightTile<float>& tile, int64_t r) {
  return std::max(tile.largest[r], _mm512_reduce_max_ps(largest_of(tile.scores + r * tile.stride, tile.count)));
}
[[gnu::always_inline]] inline float shift_of(const WeightTile<float>& tile, float largest) {
  return largest == -std::numeric_limits<float>::infinity() ? 0 : tile.factor * largest;
}
[[gnu::always_inline]] inline void end_row(const WeightTile<float>& tile, int64_t r, float largest, float sum) {
  tile.rescale[r] = rescaled(tile.factor, tile.largest[r], largest);
  tile.sum[r] = tile.sum[r] * tile.rescale[r] + sum;
  tile.largest[r] = largest;
}

// Four rows of a tile, whose largest scores and sums are taken together.
struct FourRows {
  __m128 largest;
  float shift[4];
};

XFORMER_BY_512 [[gnu::always_inline]] inline FourRows begin_four(const WeightTile<float>& tile, int64_t first) {
  const float* const scores = tile.scores + first * tile.stride;
  const __m512 lanes[4] = {largest_of(scores, tile.count), largest_of(scores + tile.stride, tile.count),
                           largest_of(scores + 2 * tile.stride, tile.count),
                           largest_of(scores + 3 * tile.stride, tile.count)};
  FourRows four;
  four.largest = _mm_max_ps(_mm_loadu_ps(tile.largest + first), across<true>(lanes));
  const __m128 none = _mm_set1_ps(-std::numeric_limits<float>::infinity());
  _mm_storeu_ps(four.shift, _mm_maskz_mul_ps(_mm_cmp_ps_mask(four.largest, none, _CMP_NEQ_UQ), _mm_set1_ps(tile.factor),
                                             four.largest));
  return four;
}

// Afterwards, with the lanes of the sums of their weights.
XFORMER_BY_512 [[gnu::always_inline]] inline void end_four(const WeightTile<float>& tile, int64_t first,
                                                           const FourRows& four, const __m512 (&lanes)[4]) {
  const __m128 before = _mm_loadu_ps(tile.largest + first), none = _mm_set1_ps(-std::numeric_limits<float>::infinity()),
               sums = across<false>(lanes);
  const __mmask8 larger = _mm_cmp_ps_mask(four.largest, before, _CMP_GT_OQ),
                 anew = _mm_cmp_ps_mask(before, none, _CMP_EQ_OQ);
  if ((larger & ~anew) == 0) {  // none is to be scaled but by nothing or zero
    const __m128 rescale = _mm_maskz_mov_ps(static_cast<__mmask8>(~larger), _mm_set1_ps(1));
    _mm_storeu_ps(tile.rescale + first, rescale);
    _mm_storeu_ps(tile.sum + first, _mm_add_ps(_mm_mul_ps(_mm_loadu_ps(tile.sum + first), rescale), sums));
    _mm_storeu_ps(tile.largest + first, four.largest);
    return;
  }
  float sum[4], now[4];
  _mm_storeu_ps(sum, sums);
  _mm_storeu_ps(now, four.largest);
  for (int64_t k = 0; k < 4; ++k) end_row(tile, first + k, now[k], sum[k]);
}

// The row as the loops over its weights take it; returns its scores.
XFORMER_BY_512 [[gnu::always_inline]] inline const float* take_row(const WeightTile<float>& tile, int64_t r,
                                                                   float shift, Row& row) {
  row.shift = _mm512_set1_ps(shift);
  row.draws = tile.draws[r];
  return tile.scores + r * tile.stride;
}

template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline void float_tile(const WeightTile<float>& tile, float* out) {
  Row row = row_of({tile.factor, 0, nullptr, tile.threshold, tile.keep});
  int64_t r = 0;
  for (; r + 4 <= tile.rows; r += 4) {
    const FourRows four = begin_four(tile, r);
    __m512 sums[4];
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k)
      sums[k] = float_weights<kDrops>(take_row(tile, r + k, four.shift[k], row), tile.count, row,
                                      out + (r + k) * tile.stride);
    end_four(tile, r, four, sums);
  }
  for (; r < tile.rows; ++r) {
    const float now = begin_row(tile, r), shift = shift_of(tile, now);
    const __m512 sum = float_weights<kDrops>(take_row(tile, r, shift, row), tile.count, row, out + r * tile.stride);
    end_row(tile, r, now, _mm512_reduce_add_ps(sum));
  }
}

template <bool kDrops>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void bf16_tile(const WeightTile<float>& tile, c10::BFloat16* out) {
  Row row = row_of({tile.factor, 0, nullptr, tile.threshold, tile.keep});
  int64_t r = 0;
  for (; r + 4 <= tile.rows; r += 4) {
    const FourRows four = begin_four(tile, r);
    __m512 sums[4];
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k)
      sums[k] =
          bf16_weights<kDrops>(take_row(tile, r + k, four.shift[k], row), tile.count, row, out + (r + k) * tile.stride);
    end_four(tile, r, four, sums);
  }
  for (; r < tile.rows; ++r) {
    const float now = begin_row(tile, r), shift = shift_of(tile, now);
    const __m512 sum = bf16_weights<kDrops>(take_row(tile, r, shift, row), tile.count, row, out + r * tile.stride);
    end_row(tile, r, now, _mm512_reduce_add_ps(sum));
  }
}

// p (drop(gradient) - delta) slope, p being the weights before dropout.
template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 slope_of(const __m512& p, const float* gradient, __mmask16 lanes,
                                                             __mmask16 kept, const Row& row, const __m512& delta,
                                                             const __m512& slope) {
  const __m512 given = _mm512_maskz_loadu_ps(lanes, gradient);
  const __m512 step =
      kDrops ? _mm512_fmsub_ps(given, _mm512_maskz_mov_ps(kept, row.keep), delta) : _mm512_sub_ps(given, delta);
  return _mm512_mul_ps(_mm512_mul_ps(slope, p), step);
}

template <bool kDrops, bool kWhole>
XFORMER_BY_512 [[gnu::always_inline]] inline void gradient_step(float* scores, float* gradient, __mmask16 lanes,
                                                                int64_t i, const Row& row, const __m512& delta,
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
                                                                  const Row& row, float delta, float slope) {
  const __m512 deltas = _mm512_set1_ps(delta), slopes = _mm512_set1_ps(slope);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) gradient_step<kDrops, true>(scores, gradient, kAllLanes, i, row, deltas, slopes);
  if (i < count) gradient_step<kDrops, false>(scores, gradient, lanes_of(count - i), i, row, deltas, slopes);
}

}  // namespace

XFORMER_BY_512 float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights, float* out) {
  const Row row = row_of(weights);
  return _mm512_reduce_add_ps(weights.draws == nullptr ? float_weights<false>(scores, count, row, out)
                                                       : float_weights<true>(scores, count, row, out));
}

XFORMER_BY_BF16_512 float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights,
                                      c10::BFloat16* out) {
  const Row row = row_of(weights);
  return _mm512_reduce_add_ps(weights.draws == nullptr ? bf16_weights<false>(scores, count, row, out)
                                                       : bf16_weights<true>(scores, count, row, out));
}

XFORMER_BY_512 void weigh_tile(const WeightTile<float>& tile, float* out) {
  tile.draws[0] == nullptr ? float_tile<false>(tile, out) : float_tile<true>(tile, out);
}

XFORMER_BY_BF16_512 void weigh_tile(const WeightTile<float>& tile, c10::BFloat16* out) {
  tile.draws[0] == nullptr ? bf16_tile<false>(tile, out) : bf16_tile<true>(tile, out);
}

XFORMER_BY_512 void row_gradients(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights,
                                  float delta, float slope) {
  const Row row = row_of(weights);
  weights.draws == nullptr ? float_gradients<false>(scores, gradient, count, row, delta, slope)
                           : float_gradients<true>(scores, gradient, count, row, delta, slope);
}

namespace {

// A pair of rows with what all their numbers have in common.
struct Pair {
  Row row[2];
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
    const Row& row = pair.row[k];
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
