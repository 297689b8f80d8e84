// Rows of alpha-entmax of any power by AVX-512 (kernels/cpu/lanes_512.h): those of weight_rows.cpp with logarithms that
// divide nothing, and with a threshold to begin with that is mostly near the one that is looked for.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/lanes_512.h"
#include "kernels/entmax_attention/weight_rows.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

namespace {

constexpr int64_t kStep = 16;

// The polynomial of log2(1 + f) / f for f of -1/4 to 1/2 with the least relative error, 3e-8, highest power first.
constexpr float kLog2Terms[] = {0.0780665545F, -0.174230118F, 0.216324902F,  -0.242723547F, 0.288191504F,
                                -0.36057592F,  0.48090208F,   -0.721348478F, 1.44269503F};

struct Point {
  __m512 p, u, log2;  // of 1 + x, whose power 1 / b is p; u = p^(1 - b)
  __mmask16 above;
};

// What x = y - t makes; `power` is 1 / b - 1. NaN stays.
XFORMER_BY_512 [[gnu::always_inline]] inline Point point_at(const __m512& x, const __m512& power) {
  const __m512 one = _mm512_set1_ps(1);
  Point at;
  const __m512 w = _mm512_max_ps(_mm512_setzero_ps(), _mm512_add_ps(x, one));
  at.above = _mm512_cmp_ps_mask(w, _mm512_setzero_ps(), _CMP_NLE_UQ);
  const __m512 m = _mm512_getmant_ps(w, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src), f = _mm512_sub_ps(m, one);
  __m512 exponent = _mm512_getexp_ps(w);
  exponent = _mm512_mask_add_ps(exponent, _mm512_cmp_ps_mask(m, one, _CMP_LT_OQ), exponent, one);
  __m512 series = _mm512_set1_ps(kLog2Terms[0]);
  for (int i = 1; i < 9; ++i) series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(kLog2Terms[i]));
  at.log2 = _mm512_maskz_mov_ps(at.above, _mm512_fmadd_ps(series, f, exponent));
  at.u = _mm512_maskz_mov_ps(at.above, exp2_by_512(_mm512_mul_ps(at.log2, power)));
  at.p = _mm512_mul_ps(at.u, w);
  return at;
}

XFORMER_BY_512 [[gnu::always_inline]] inline float largest_of(const float* y, int64_t count) {
  __m512 largest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int64_t j = 0; j < count; j += kStep) largest = _mm512_max_ps(largest, _mm512_loadu_ps(y + j));
  return _mm512_reduce_max_ps(largest);
}

// A threshold, less the largest number, that is not above the right one. By Jensen's inequality n numbers of mean a
// have P >= n (1 + a - t)^(1 / b) for b up to 1, so that P is 1 at least where that is 1; for those that are near the
// largest, the best of a few ways to say near.
XFORMER_BY_512 [[gnu::always_inline]] inline float shift_below(const float* y, int64_t count, float top, float b) {
  constexpr int kWays = 4;
  constexpr float kNear[kWays] = {-1, -0.5F, -0.25F, -0.125F};
  __m512 sums[kWays] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  int64_t counts[kWays] = {};
  const __m512 tops = _mm512_set1_ps(top);
  for (int64_t j = 0; j < count; j += kStep) {
    const __m512 below = _mm512_sub_ps(_mm512_loadu_ps(y + j), tops);
    for (int i = 0; i < kWays; ++i) {
      const __mmask16 near = _mm512_cmp_ps_mask(below, _mm512_set1_ps(kNear[i]), _CMP_GT_OQ);
      sums[i] = _mm512_mask_add_ps(sums[i], near, sums[i], below);
      counts[i] += __builtin_popcount(near);
    }
  }
  float shift = 0;
  for (int i = 0; i < kWays; ++i) {
    const auto n = static_cast<float>(counts[i]);
    shift = std::max(shift, 1 + _mm512_reduce_add_ps(sums[i]) / n - std::pow(n, -b));
  }
  return shift;
}

// What dropout multiplies weights j to j + 15 by.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 factor_of(const EntmaxRow<float>& row, int64_t j,
                                                              const __m256i& threshold, const __m512& keep) {
  return row.draws == nullptr ? _mm512_set1_ps(1)
                              : _mm512_maskz_mov_ps(kept_by_512(row.draws + j, threshold, kAllLanes), keep);
}

}  // namespace

XFORMER_BY_512 float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row) {
  const float b = row.b, top = largest_of(y, count);
  if (!(top > -std::numeric_limits<float>::infinity())) return entmax_without_key(y, count);
  const __m512 power = _mm512_set1_ps(1 / b - 1), tops = _mm512_set1_ps(top);
  float shift = b > 1 ? 0 : shift_below(y, count, top, b);
  for (int step = 0; step < kMostEntmaxSteps; ++step) {
    __m512 sums = _mm512_setzero_ps(), slopes = _mm512_setzero_ps();
    const __m512 shifts = _mm512_set1_ps(shift);
    for (int64_t j = 0; j < count; j += kStep) {
      const Point at = point_at(_mm512_sub_ps(_mm512_sub_ps(_mm512_loadu_ps(y + j), tops), shifts), power);
      sums = _mm512_add_ps(sums, at.p), slopes = _mm512_add_ps(slopes, at.u);
    }
    const float sum = _mm512_reduce_add_ps(sums), before = shift;
    shift += entmax_excess(sum, b) / _mm512_reduce_add_ps(slopes);
    if (!(std::abs(sum - 1) > entmax_rest(b)) || shift == before) break;
  }
  const __m512 shifts = _mm512_set1_ps(shift), keep = _mm512_set1_ps(row.keep);
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(row.threshold));
  for (int64_t j = 0; j < count; j += kStep) {
    const __m512 p = point_at(_mm512_sub_ps(_mm512_sub_ps(_mm512_loadu_ps(y + j), tops), shifts), power).p;
    _mm512_storeu_ps(y + j, _mm512_mul_ps(p, factor_of(row, j, threshold, keep)));
  }
  return top + shift;
}

XFORMER_BY_512 float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t,
                                      float* room) {
  const float b = row.b;
  const __m512 power = _mm512_set1_ps(1 / b - 1), thresholds = _mm512_set1_ps(t), keep = _mm512_set1_ps(row.keep),
               none = _mm512_setzero_ps();
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(row.threshold));
  // u = p + e: e = -x u has its digits near alpha = 1, where u and p are nearly equal; h = -p log(1 + x) / b.
  __m512 u_sum = none, gu = none, e_sum = none, h_sum = none, ge = none, gh = none;
  const __m512 of_logs = _mm512_set1_ps(-static_cast<float>(kLogOf2) / b);
  for (int64_t j = 0; j < count; j += kStep) {
    const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(y + j), thresholds);
    const Point at = point_at(x, power);
    const __m512 g = _mm512_mul_ps(_mm512_loadu_ps(gradient + j), factor_of(row, j, threshold, keep));
    const __m512 e = _mm512_maskz_mul_ps(at.above, _mm512_sub_ps(none, x), at.u),
                 h = _mm512_mul_ps(_mm512_mul_ps(at.p, at.log2), of_logs);
    _mm512_storeu_ps(room + j, at.u);
    u_sum = _mm512_add_ps(u_sum, at.u), gu = _mm512_fmadd_ps(g, at.u, gu);
    e_sum = _mm512_add_ps(e_sum, e), h_sum = _mm512_add_ps(h_sum, h);
    ge = _mm512_fmadd_ps(g, e, ge), gh = _mm512_fmadd_ps(g, h, gh);
  }
  const float total = _mm512_reduce_add_ps(u_sum), products = _mm512_reduce_add_ps(gu);
  const float mean = products / total;  // of rows with a key: u is 1 at least in all
  const __m512 means = _mm512_set1_ps(mean), one = _mm512_set1_ps(1);
  for (int64_t j = 0; j < count; j += kStep) {
    const __m512 u = _mm512_loadu_ps(room + j), kept = factor_of(row, j, threshold, keep),
                 w = _mm512_add_ps(_mm512_sub_ps(_mm512_loadu_ps(y + j), thresholds), one);
    const __m512 p = _mm512_mul_ps(u, _mm512_max_ps(none, w));
    _mm512_storeu_ps(y + j, _mm512_mul_ps(p, kept));
    _mm512_storeu_ps(gradient + j, _mm512_mul_ps(u, _mm512_fmsub_ps(_mm512_loadu_ps(gradient + j), kept, means)));
  }
  const float e_total = _mm512_reduce_add_ps(e_sum), ge_total = _mm512_reduce_add_ps(ge);
  return ((products - ge_total) * e_total - ge_total) / total / (b * b) +
         (_mm512_reduce_add_ps(gh) - mean * _mm512_reduce_add_ps(h_sum)) / b;
}

#else

// For the linker: has_512() is false here.
float entmax_weights(float*, int64_t, const EntmaxRow<float>&) { return 0; }
float entmax_gradients(float*, float*, int64_t, const EntmaxRow<float>&, float, float*) { return 0; }

#endif

}  // namespace xformer::kernels::by_512
