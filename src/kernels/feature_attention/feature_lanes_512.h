// Sixteen features at a time by AVX-512.
#pragma once

#include "kernels/cpu/lanes_512.h"
#include "kernels/feature_attention/feature_map.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

inline constexpr int64_t kColumnLanes = 16;

// So many columns of a row, or of them those that are there.
template <bool kWhole>
struct Columns {
  __mmask16 lanes = kAllLanes;
  XFORMER_BY_512 [[gnu::always_inline]] inline __m512 of(const float* from) const {
    if constexpr (kWhole) return _mm512_loadu_ps(from);
    else return _mm512_maskz_loadu_ps(lanes, from);
  }
  XFORMER_BY_512 [[gnu::always_inline]] inline __m512 alone(const __m512& x) const {
    if constexpr (kWhole) return x;
    else return _mm512_maskz_mov_ps(lanes, x);
  }
  XFORMER_BY_512 [[gnu::always_inline]] inline void put(const __m512& x, float* to) const {
    if constexpr (kWhole) _mm512_storeu_ps(to, x);
    else _mm512_mask_storeu_ps(to, lanes, x);
  }
};

// A feature, and how it grows with y. NaN stays NaN.
struct Feature {
  __m512 value, slope;
};

// kSoftmax takes its shift times log2 e.
template <FeatureMap kMap>
XFORMER_BY_512 [[gnu::always_inline]] inline Feature feature_of(const __m512& y, const __m512& shift,
                                                                const __m512& floor) {
  const __m512 one = _mm512_set1_ps(1), zero = _mm512_setzero_ps(),
               factor = _mm512_set1_ps(static_cast<float>(kLog2OfE));
  if constexpr (kMap == FeatureMap::kSoftmax) {
    const __m512 peak = exp2_by_512(_mm512_fmsub_ps(y, factor, shift));
    return {_mm512_add_ps(peak, floor), peak};
  } else if constexpr (kMap == FeatureMap::kElu) {
    const __mmask16 above = _mm512_cmp_ps_mask(y, zero, _CMP_GT_OQ);
    const __m512 low = exp2_by_512(_mm512_mul_ps(_mm512_min_ps(zero, y), factor));
    return {_mm512_add_ps(_mm512_mask_add_ps(low, above, y, one), floor), _mm512_mask_mov_ps(low, above, one)};
  } else {
    const __m512 value = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, zero, _CMP_NLT_UQ), y);
    return {_mm512_add_ps(value, floor), _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, zero, _CMP_GT_OQ), one)};
  }
}

#endif

}  // namespace xformer::kernels::by_512
