// Rows of weights over windows by AVX-512: those of window_rows.cpp by hand (kernels/cpu/lanes_512.h), to the same
// bits.
#include <limits>

#include "kernels/cpu/lanes_512.h"
#include "kernels/window_attention/window_rows.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

namespace {

template <bool kDrops>
XFORMER_BY_512 [[gnu::always_inline]] inline RowSum<float> weigh(float* scores, int64_t count, const uint16_t* draws,
                                                                 uint32_t threshold, float keep) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  __m512 largest = _mm512_set1_ps(kNone), sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += kRowStep) largest = _mm512_max_ps(largest, _mm512_loadu_ps(scores + i));
  const float most = _mm512_reduce_max_ps(largest), shift = most == kNone ? 0 : most;
  const __m512 shifts = _mm512_set1_ps(shift), factor = _mm512_set1_ps(static_cast<float>(kLog2OfE)),
               keeps = _mm512_set1_ps(keep);
  const __m256i thresholds = _mm256_set1_epi16(static_cast<int16_t>(threshold));
  for (int64_t i = 0; i < count; i += kRowStep) {
    const __m512 p = exp2_by_512(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(scores + i), shifts), factor));
    sum = _mm512_add_ps(sum, p);
    _mm512_storeu_ps(scores + i,
                     kDrops ? _mm512_maskz_mul_ps(kept_by_512(draws + i, thresholds, kAllLanes), p, keeps) : p);
  }
  return {shift, _mm512_reduce_add_ps(sum)};
}

}  // namespace

XFORMER_BY_512 RowSum<float> weigh_row(float* scores, int64_t count, const uint16_t* draws, uint32_t threshold,
                                       float keep) {
  return draws == nullptr ? weigh<false>(scores, count, draws, threshold, keep)
                          : weigh<true>(scores, count, draws, threshold, keep);
}

#else

// For the linker: has_512() is false here.
RowSum<float> weigh_row(float*, int64_t, const uint16_t*, uint32_t, float) { return {}; }

#endif

}  // namespace xformer::kernels::by_512
