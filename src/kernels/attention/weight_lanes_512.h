// What loops over rows of attention weights by AVX-512 share (weight_rows_512.cpp, slope_rows_512.cpp).
#pragma once

#include <limits>

#include "kernels/attention/weight_rows.h"
#include "kernels/cpu/lanes_512.h"

#ifdef XFORMER_BY_512

namespace xformer::kernels::by_512 {

// What all numbers of a row have in common.
struct WeightRow {
  const uint16_t* draws;
  __m512 factor, shift, keep;
  __m256i threshold;
};

XFORMER_BY_512 [[gnu::always_inline]] inline WeightRow row_of(const RowWeights<float>& weights) {
  return {weights.draws, _mm512_set1_ps(weights.factor), _mm512_set1_ps(weights.shift), _mm512_set1_ps(weights.keep),
          _mm256_set1_epi16(static_cast<int16_t>(weights.threshold))};
}

XFORMER_BY_512 [[gnu::always_inline]] inline __m512 undropped(const WeightRow& row, const float* scores,
                                                              __mmask16 lanes) {
  return exp2_by_512(_mm512_fmsub_ps(row.factor, _mm512_maskz_loadu_ps(lanes, scores), row.shift));
}

template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 kept(const WeightRow& row, int64_t i, __mmask16 lanes) {
  if constexpr (kDrops) return kept_by_512(row.draws + i, row.threshold, lanes);
  else return lanes;
}

// In the vectors of a row's span, closes what is beside it.
XFORMER_BY_512 [[gnu::always_inline]] inline void close_beside(const RowSpan& span, float* scores) {
  const RowSpan steps = span.steps();
  const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  if (steps.begin < span.begin) {
    float* const first = scores + steps.begin;
    _mm512_storeu_ps(first, _mm512_mask_mov_ps(_mm512_loadu_ps(first), lanes_of(span.begin - steps.begin), none));
  }
  if (span.begin < span.end && span.end < steps.end) {
    float* const last = scores + steps.end - 16;
    _mm512_storeu_ps(last, _mm512_mask_mov_ps(none, lanes_of(span.end - (steps.end - 16)), _mm512_loadu_ps(last)));
  }
}

// Zeros beside some vectors of a row of `count` numbers.
XFORMER_BY_512 [[gnu::always_inline]] inline void zero_beside(const RowSpan& steps, int64_t count, float* row) {
  for (int64_t i = 0; i < steps.begin; i += 16) _mm512_storeu_ps(row + i, _mm512_setzero_ps());
  for (int64_t i = steps.end; i < count; i += 16) _mm512_storeu_ps(row + i, _mm512_setzero_ps());
}
XFORMER_BY_512 [[gnu::always_inline]] inline void zero_beside(const RowSpan& steps, int64_t count, c10::BFloat16* row) {
  for (int64_t i = 0; i < steps.begin; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + i), _mm256_setzero_si256());
  for (int64_t i = steps.end; i < count; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + i), _mm256_setzero_si256());
}

}  // namespace xformer::kernels::by_512

#endif
