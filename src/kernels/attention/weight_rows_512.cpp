// Rows of attention weights by AVX-512: the loops of weight_rows.cpp by hand (kernels/cpu/lanes_512.h), to the same
// bits in float, and those that leave numbers rounded as products of bf16 take them.
#include "kernels/attention/weight_lanes_512.h"

#include <algorithm>

#ifdef XFORMER_BY_512

namespace xformer::kernels::by_512 {

namespace {

// The weights of scores i .. i + 15, which `sum` gains before dropout.
template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 weigh(const WeightRow& row, const float* scores, int64_t i,
                                                          __mmask16 lanes, __m512& sum) {
  const __m512 p = undropped(row, scores + i, lanes);
  sum = _mm512_mask_add_ps(sum, lanes, sum, p);
  return kDrops ? _mm512_maskz_mul_ps(kept<kDrops>(row, i, lanes), p, row.keep) : p;
}

// The weights of a row. Returned are the lanes of their sum: in steps of four registers, then of one, as weights_of()
// sums them.
template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 float_weights(const float* scores, int64_t count,
                                                                  const WeightRow& row, float* out) {
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
                                                                      const WeightRow& row, c10::BFloat16* out) {
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
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 largest_of(const WeightTile<float>& tile, int64_t r) {
  float* const scores = tile.scores + r * tile.stride;
  if (tile.spans != nullptr) close_beside(tile.spans[r], scores);
  const RowSpan steps = tile.steps(r);
  return largest_of(scores + steps.begin, steps.end - steps.begin);
}
XFORMER_BY_512 [[gnu::always_inline]] inline float begin_row(const WeightTile<float>& tile, int64_t r) {
  return std::max(tile.largest[r], _mm512_reduce_max_ps(largest_of(tile, r)));
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
  const __m512 lanes[4] = {largest_of(tile, first), largest_of(tile, first + 1), largest_of(tile, first + 2),
                           largest_of(tile, first + 3)};
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

// A row's weights, and the lanes of their sum.
template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 weigh_row(const WeightTile<float>& tile, int64_t r, float shift,
                                                              WeightRow& row, float* out) {
  const RowSpan steps = tile.steps(r);
  float* const to = out + r * tile.stride;
  row.shift = _mm512_set1_ps(shift);
  if (kDrops) row.draws = tile.draws[r] + steps.begin;
  const __m512 sum = float_weights<kDrops>(tile.scores + r * tile.stride + steps.begin, steps.end - steps.begin, row,
                                           to + steps.begin);
  zero_beside(steps, tile.count, to);
  return sum;
}
template <bool kDrops>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 weigh_row(const WeightTile<float>& tile, int64_t r,
                                                                   float shift, WeightRow& row, c10::BFloat16* out) {
  const RowSpan steps = tile.steps(r);
  c10::BFloat16* const to = out + r * tile.stride;
  row.shift = _mm512_set1_ps(shift);
  if (kDrops) row.draws = tile.draws[r] + steps.begin;
  const __m512 sum =
      bf16_weights<kDrops>(tile.scores + r * tile.stride + steps.begin, steps.end - steps.begin, row, to + steps.begin);
  zero_beside(steps, tile.count, to);
  return sum;
}

template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline void float_tile(const WeightTile<float>& tile, float* out) {
  WeightRow row = row_of({tile.factor, 0, nullptr, tile.threshold, tile.keep});
  int64_t r = 0;
  for (; r + 4 <= tile.rows; r += 4) {
    const FourRows four = begin_four(tile, r);
    __m512 sums[4];
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k) sums[k] = weigh_row<kDrops>(tile, r + k, four.shift[k], row, out);
    end_four(tile, r, four, sums);
  }
  for (; r < tile.rows; ++r) {
    const float now = begin_row(tile, r);
    end_row(tile, r, now, _mm512_reduce_add_ps(weigh_row<kDrops>(tile, r, shift_of(tile, now), row, out)));
  }
}

template <bool kDrops>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void bf16_tile(const WeightTile<float>& tile, c10::BFloat16* out) {
  WeightRow row = row_of({tile.factor, 0, nullptr, tile.threshold, tile.keep});
  int64_t r = 0;
  for (; r + 4 <= tile.rows; r += 4) {
    const FourRows four = begin_four(tile, r);
    __m512 sums[4];
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k) sums[k] = weigh_row<kDrops>(tile, r + k, four.shift[k], row, out);
    end_four(tile, r, four, sums);
  }
  for (; r < tile.rows; ++r) {
    const float now = begin_row(tile, r);
    end_row(tile, r, now, _mm512_reduce_add_ps(weigh_row<kDrops>(tile, r, shift_of(tile, now), row, out)));
  }
}

}  // namespace

XFORMER_BY_512 float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights, float* out) {
  const WeightRow row = row_of(weights);
  return _mm512_reduce_add_ps(weights.draws == nullptr ? float_weights<false>(scores, count, row, out)
                                                       : float_weights<true>(scores, count, row, out));
}

XFORMER_BY_BF16_512 float row_weights(const float* scores, int64_t count, const RowWeights<float>& weights,
                                      c10::BFloat16* out) {
  const WeightRow row = row_of(weights);
  return _mm512_reduce_add_ps(weights.draws == nullptr ? bf16_weights<false>(scores, count, row, out)
                                                       : bf16_weights<true>(scores, count, row, out));
}

XFORMER_BY_512 void weigh_tile(const WeightTile<float>& tile, float* out) {
  tile.draws[0] == nullptr ? float_tile<false>(tile, out) : float_tile<true>(tile, out);
}

XFORMER_BY_BF16_512 void weigh_tile(const WeightTile<float>& tile, c10::BFloat16* out) {
  tile.draws[0] == nullptr ? bf16_tile<false>(tile, out) : bf16_tile<true>(tile, out);
}

}  // namespace xformer::kernels::by_512

#endif
