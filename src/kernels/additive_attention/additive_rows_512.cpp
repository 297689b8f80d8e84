// The loops of additive attention over powers by AVX-512: a reciprocal of fourteen bits and one of Newton's steps take
// the place of a division.
#include "kernels/additive_attention/cpu.h"
#include "kernels/cpu/lanes_512.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

namespace {

constexpr int64_t kPowerLanes = 16;

// 1 / (1 + q k). What is far above 2^100 has no reciprocal; NaN stays NaN.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 share_below(const __m512& q, const __m512& k) {
  const __m512 one = _mm512_set1_ps(1);
  const __m512 sum = _mm512_min_ps(_mm512_set1_ps(0x1p100F), _mm512_fmadd_ps(q, k, one));
  const __m512 near = _mm512_rcp14_ps(sum);
  return _mm512_fmadd_ps(near, _mm512_fnmadd_ps(sum, near, one), near);
}

// kSteps times sixteen keys, of the last of which `lanes` are there.
template <int kSteps>
XFORMER_BY_512 [[gnu::always_inline]] inline void scores_of_keys(const float* q, const float* w, int64_t d,
                                                                 const float* k, int64_t stride, float all,
                                                                 __mmask16 lanes, float* scores) {
  __m512 sums[kSteps];
  for (__m512& sum : sums) sum = _mm512_set1_ps(all);
  for (int64_t c = 0; c < d; ++c) {
    const __m512 power = _mm512_set1_ps(q[c]), factor = _mm512_set1_ps(-2 * w[c]);
    for (int i = 0; i < kSteps; ++i) {
      const float* const from = k + c * stride + i * kPowerLanes;
      const __m512 keys = i + 1 < kSteps ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(lanes, from);
      sums[i] = _mm512_fmadd_ps(factor, share_below(power, keys), sums[i]);
    }
  }
  for (int i = 0; i + 1 < kSteps; ++i) _mm512_storeu_ps(scores + i * kPowerLanes, sums[i]);
  _mm512_mask_storeu_ps(scores + (kSteps - 1) * kPowerLanes, lanes, sums[kSteps - 1]);
}

}  // namespace

XFORMER_BY_512 void additive_scores(const float* q, const float* w, int64_t d, const float* k, int64_t stride,
                                    int64_t count, float* scores) {
  constexpr int kSteps = 4;
  constexpr int64_t kKeys = kSteps * kPowerLanes;
  float all = 0;
  for (int64_t c = 0; c < d; ++c) all += w[c];
  int64_t j = 0;
  for (; j + kKeys <= count; j += kKeys) scores_of_keys<kSteps>(q, w, d, k + j, stride, all, kAllLanes, scores + j);
  for (; j < count; j += kPowerLanes) scores_of_keys<1>(q, w, d, k + j, stride, all, lanes_of(count - j), scores + j);
}

XFORMER_BY_512 void additive_gradients(const float* q, const float* w, int64_t d, const float* k, int64_t stride,
                                       int64_t count, const float* slopes, float* dq, float* dw, float* dk) {
  __m512 all = _mm512_setzero_ps();
  for (int64_t j = 0; j < count; j += kPowerLanes)
    all = _mm512_add_ps(all, _mm512_maskz_loadu_ps(lanes_of(count - j), slopes + j));
  const float slope_sum = _mm512_reduce_add_ps(all);
  for (int64_t c = 0; c < d; ++c) {
    const __m512 power = _mm512_set1_ps(q[c]), factor = _mm512_set1_ps(4 * w[c]);
    __m512 of_query = _mm512_setzero_ps(), shares = _mm512_setzero_ps();
    for (int64_t j = 0; j < count; j += kPowerLanes) {
      const __mmask16 lanes = lanes_of(count - j);
      const __m512 share = share_below(power, _mm512_maskz_loadu_ps(lanes, k + c * stride + j));
      const __m512 slope = _mm512_maskz_loadu_ps(lanes, slopes + j);
      // With r the share tanh is 1 - 2 r and grows by 4 (r - r^2).
      const __m512 gradient = _mm512_mul_ps(_mm512_mul_ps(slope, factor), _mm512_fnmadd_ps(share, share, share));
      float* const to = dk + c * stride + j;
      _mm512_mask_storeu_ps(to, lanes, _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), gradient));
      of_query = _mm512_add_ps(of_query, gradient);
      shares = _mm512_fmadd_ps(slope, share, shares);
    }
    dq[c] += _mm512_reduce_add_ps(of_query);
    dw[c] += slope_sum - 2 * _mm512_reduce_add_ps(shares);
  }
}

#else

void additive_scores(const float*, const float*, int64_t, const float*, int64_t, int64_t, float*) {}
void additive_gradients(const float*, const float*, int64_t, const float*, int64_t, int64_t, const float*, float*,
                        float*, float*) {}

#endif

}  // namespace xformer::kernels::by_512
