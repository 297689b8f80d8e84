// Rows of alpha-entmax by AVX-512 (kernels/cpu/lanes_512.h): those of weight_rows.cpp with logarithms that divide
// nothing, and a threshold that is looked for among the few numbers that may be above it.
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
  __m512 p, u, log2;  // of 1 + x, whose power 1 / b is p; u = p^(1 - b). The last is for any power
  __mmask16 above;
};

// What x = y - t makes; `exponent` is 1 / b - 1. NaN stays.
template <EntmaxPower power>
XFORMER_BY_512 [[gnu::always_inline]] inline Point point_at(const __m512& x, const __m512& exponent) {
  const __m512 one = _mm512_set1_ps(1);
  Point at;
  const __m512 w = _mm512_max_ps(_mm512_setzero_ps(), _mm512_add_ps(x, one));
  at.above = _mm512_cmp_ps_mask(w, _mm512_setzero_ps(), _CMP_NLE_UQ);
  if constexpr (power == EntmaxPower::kOne) {
    at.p = w, at.u = _mm512_maskz_mov_ps(at.above, one);
  } else if constexpr (power == EntmaxPower::kTwo) {
    at.p = _mm512_mul_ps(w, w), at.u = w;
  } else {
    const __m512 m = _mm512_getmant_ps(w, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src), f = _mm512_sub_ps(m, one);
    __m512 log2 = _mm512_getexp_ps(w);
    log2 = _mm512_mask_add_ps(log2, _mm512_cmp_ps_mask(m, one, _CMP_LT_OQ), log2, one);
    __m512 series = _mm512_set1_ps(kLog2Terms[0]);
    for (int i = 1; i < 9; ++i) series = _mm512_fmadd_ps(series, f, _mm512_set1_ps(kLog2Terms[i]));
    at.log2 = _mm512_maskz_mov_ps(at.above, _mm512_fmadd_ps(series, f, log2));
    at.u = _mm512_maskz_mov_ps(at.above, exp2_by_512(_mm512_mul_ps(at.log2, exponent)));
    at.p = _mm512_mul_ps(at.u, w);
  }
  return at;
}

// Newton's steps from `shift` on to where the sum P of the powers of 1 + x - shift is 1, for whole registers of x,
// until the last but one has left no more than `rest`.
template <EntmaxPower power>
XFORMER_BY_512 [[gnu::always_inline]] inline float risen(const float* numbers, int64_t count, float shift, float b,
                                                         float rest) {
  const __m512 exponent = _mm512_set1_ps(1 / b - 1);
  for (int step = 0; step < kMostEntmaxSteps; ++step) {
    __m512 sums = _mm512_setzero_ps(), slopes = _mm512_setzero_ps();
    const __m512 shifts = _mm512_set1_ps(shift);
    for (int64_t j = 0; j < count; j += kStep) {
      const Point at = point_at<power>(_mm512_sub_ps(_mm512_loadu_ps(numbers + j), shifts), exponent);
      sums = _mm512_add_ps(sums, at.p), slopes = _mm512_add_ps(slopes, at.u);
    }
    const float sum = _mm512_reduce_add_ps(sums), before = shift;
    shift += entmax_excess<power>(sum, b) / _mm512_reduce_add_ps(slopes);
    if (!(std::abs(sum - 1) > rest) || shift == before) break;
  }
  return shift;
}

// What dropout multiplies weights j to j + 15 by.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 factor_of(const EntmaxRow<float>& row, int64_t j,
                                                              const __m256i& threshold, const __m512& keep) {
  return row.draws == nullptr ? _mm512_set1_ps(1)
                              : _mm512_maskz_mov_ps(kept_by_512(row.draws + j, threshold, kAllLanes), keep);
}

// Which numbers are above a threshold that is not above the row's: those that have weight are among them. NaN is.
XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 above(const __m512& below, const __m512& shift) {
  return _mm512_cmp_ps_mask(_mm512_add_ps(_mm512_sub_ps(below, shift), _mm512_set1_ps(1)), _mm512_setzero_ps(),
                            _CMP_NLE_UQ);
}

template <EntmaxPower power>
XFORMER_BY_512 [[gnu::always_inline]] inline float weights_of(float* y, int64_t count, const EntmaxRow<float>& row,
                                                              float* room) {
  constexpr int64_t kColumns = 4;  // registers of them
  constexpr float kNear = 0.5F;
  static_assert(kColumns * kStep == 2 * kEntmaxLanes);
  const float b = row.b;
  const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 largest[kColumns] = {none, none, none, none};
  int64_t first = 0;
  for (; first + kColumns * kStep <= count; first += kColumns * kStep)
    for (int64_t k = 0; k < kColumns; ++k)
      largest[k] = _mm512_max_ps(largest[k], _mm512_loadu_ps(y + first + k * kStep));
  if (first < count)  // half as many
    for (int64_t k = 0; k < kColumns / 2; ++k)
      largest[k] = _mm512_max_ps(largest[k], _mm512_loadu_ps(y + first + k * kStep));
  const float top =
      _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3])));
  if (!(top > -std::numeric_limits<float>::infinity())) return entmax_without_key(y, count);
  const __m512 tops = _mm512_set1_ps(top);
  // The threshold of some numbers is not above that of all, and of columns' largest ones it is near. Above an alpha of
  // 2 steps may go beyond it.
  float shift = 0;
  if (b <= 1) {
    for (int64_t k = 0; k < kColumns; ++k) _mm512_storeu_ps(room + k * kStep, _mm512_sub_ps(largest[k], tops));
    shift = risen<power>(room, kColumns * kStep, 0, b, kNear);
  }
  const __m512 least = _mm512_set1_ps(shift);
  int64_t kept = 0;
  for (int64_t j = 0; j < count; j += kStep) {
    const __m512 below = _mm512_sub_ps(_mm512_loadu_ps(y + j), tops);
    const __mmask16 stays = above(below, least);
    _mm512_storeu_ps(room + kept, _mm512_maskz_compress_ps(stays, below));
    kept += __builtin_popcount(stays);
  }
  _mm512_storeu_ps(room + kept, none);
  shift = risen<power>(room, kept, shift, b, entmax_rest(b));
  const __m512 shifts = _mm512_set1_ps(shift), keep = _mm512_set1_ps(row.keep), exponent = _mm512_set1_ps(1 / b - 1);
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(row.threshold));
  if constexpr (power == EntmaxPower::kAny)
    for (int64_t i = 0; i < kept; i += kStep)
      _mm512_storeu_ps(room + i, point_at<power>(_mm512_sub_ps(_mm512_loadu_ps(room + i), shifts), exponent).p);
  const float* next = room;
  for (int64_t j = 0; j < count; j += kStep) {
    const __m512 below = _mm512_sub_ps(_mm512_loadu_ps(y + j), tops);
    __m512 p;
    if constexpr (power == EntmaxPower::kAny) {
      const __mmask16 stays = above(below, least);
      p = _mm512_maskz_expand_ps(stays, _mm512_loadu_ps(next));
      next += __builtin_popcount(stays);
    } else {
      p = point_at<power>(_mm512_sub_ps(below, shifts), exponent).p;
    }
    _mm512_storeu_ps(y + j, _mm512_mul_ps(p, factor_of(row, j, threshold, keep)));
  }
  return top + shift;
}

}  // namespace

XFORMER_BY_512 float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row, float* room) {
  if (row.power == EntmaxPower::kOne) return weights_of<EntmaxPower::kOne>(y, count, row, room);
  if (row.power == EntmaxPower::kTwo) return weights_of<EntmaxPower::kTwo>(y, count, row, room);
  return weights_of<EntmaxPower::kAny>(y, count, row, room);
}

XFORMER_BY_512 float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t,
                                      float* room) {
  const float b = row.b;
  const __m512 exponent = _mm512_set1_ps(1 / b - 1), thresholds = _mm512_set1_ps(t), keep = _mm512_set1_ps(row.keep),
               none = _mm512_setzero_ps();
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(row.threshold));
  // u = p + e: e = -x u has its digits near alpha = 1, where u and p are nearly equal; h = -p log(1 + x) / b.
  __m512 u_sum = none, gu = none, e_sum = none, h_sum = none, ge = none, gh = none;
  const __m512 of_logs = _mm512_set1_ps(-static_cast<float>(kLogOf2) / b);
  for (int64_t j = 0; j < count; j += kStep) {
    const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(y + j), thresholds);
    const Point at = point_at<EntmaxPower::kAny>(x, exponent);
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
float entmax_weights(float*, int64_t, const EntmaxRow<float>&, float*) { return 0; }
float entmax_gradients(float*, float*, int64_t, const EntmaxRow<float>&, float, float*) { return 0; }

#endif

}  // namespace xformer::kernels::by_512
