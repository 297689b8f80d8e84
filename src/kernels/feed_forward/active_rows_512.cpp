#include <utility>

#include "kernels/cpu/rounding.h"
#include "kernels/feed_forward/active_rows.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_512

namespace {

// The share below x and the slope of gelu (gelu_dropout/runs.cpp) without exponential and quotient: less 1/2 both are
// odd, x times a function of x^2, here a polynomial of u = 2 (x / kBound)^2 - 1 in [-1, 1]; beyond kBound x counts as
// +-kBound. The share's is fitted for the least largest error of gelu(x) = x share, which within 8 of 0 is 1e-5 at
// most, the slope's for its own, 2e-5: hundredths of what rounding to bf16 does near 1.
constexpr float kBound = 4.75F;
constexpr int kTerms = 12;
using Terms = float[kTerms];  // of u^11 .. u^0
struct Fit {
  Terms share, slope;
};
constexpr Fit kNormal = {
    {-0.000597056933F, 0.00180055585F, -0.00249326741F, 0.00394519418F, -0.00812804513F, 0.0141617646F, -0.0213496797F,
     0.0301902182F, -0.0406038165F, 0.0532555431F, -0.0736664981F, 0.148747995F},
    {-0.0108473027F, 0.0264097238F, -0.0224418912F, 0.026246986F, -0.0593139385F, 0.0844194513F, -0.0891649771F,
     0.0884096161F, -0.0828626486F, 0.0759113443F, -0.0816625456F, 0.150162957F}};
constexpr Fit kLogistic = {
    {-0.000750614912F, 0.00233104615F, -0.00306888716F, 0.00395959662F, -0.0076685627F, 0.0136679634F, -0.0209691264F,
     0.0299876928F, -0.0406257994F, 0.0533842556F, -0.0737553611F, 0.148770869F},
    {-0.014717698F, 0.0346793765F, -0.0228399475F, 0.0161744787F, -0.0522217323F, 0.0839329723F, -0.0903205996F,
     0.0901866877F, -0.0846922597F, 0.0765526021F, -0.0815016453F, 0.150030952F}};

struct Place {
  __m512 scaled, u, square;  // x, bounded as above, by the scale; u, and its square
};

XFORMER_BY_512 [[gnu::always_inline]] inline Place place_of(const __m512& any, const __m512& scale) {
  const __m512 x = _mm512_range_ps(any, _mm512_set1_ps(kBound), /*the lesser magnitude, the first's sign*/ 2);
  const __m512 u = _mm512_fmsub_ps(x, _mm512_mul_ps(x, _mm512_set1_ps(2 / (kBound * kBound))), _mm512_set1_ps(1));
  return {_mm512_mul_ps(x, scale), u, _mm512_mul_ps(u, u)};
}

// What is fitted, by the scale.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 fitted(const Place& at, const Terms& terms, const __m512& scale) {
  // Even and odd powers apart: half as many sums wait for each other.
  __m512 odd = _mm512_set1_ps(terms[0]), even = _mm512_set1_ps(terms[1]);
  for (int i = 2; i < kTerms; i += 2) {
    odd = _mm512_fmadd_ps(odd, at.square, _mm512_set1_ps(terms[i]));
    even = _mm512_fmadd_ps(even, at.square, _mm512_set1_ps(terms[i + 1]));
  }
  return _mm512_fmadd_ps(at.scaled, _mm512_fmadd_ps(odd, at.u, even), _mm512_mul_ps(scale, _mm512_set1_ps(0.5F)));
}

template <bool kTanh>
constexpr const Fit& fit() {
  return kTanh ? kLogistic : kNormal;
}

XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 kept_at(const uint16_t* draws, int64_t i,
                                                               const __m256i& threshold, __mmask16 lanes) {
  return draws == nullptr ? lanes : kept_by_512(draws + i, threshold, lanes);
}

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_16(const __m256i& numbers, __mmask16 lanes,
                                                                c10::BFloat16* to) {
  if (lanes == kAllLanes) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), numbers);
  else _mm256_mask_storeu_epi16(to, lanes, numbers);
}

// The lanes of a step of 16 of which `left` numbers are left; all of them in rows of whole steps.
template <bool kWhole>
[[gnu::always_inline]] inline __mmask16 lanes_of_16(int64_t left) {
  return kWhole ? kAllLanes : lanes_of(left);
}

template <bool kTanh, bool kWhole>
XFORMER_BY_BF16_512 void rows_of(const ActiveRows& run, const float* sums, const float* bias, c10::BFloat16* z_to,
                                 c10::BFloat16* active_to) {
  const __m512 keep = _mm512_set1_ps(run.keep);
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(run.threshold));
  for (int64_t r = 0, at = 0; r < run.rows; ++r, at += run.f)
    for (int64_t i = 0; i < run.f; i += 16) {
      const __mmask16 lanes = lanes_of_16<kWhole>(run.f - i);
      const __m512 z =
          _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, sums + at + i), _mm512_maskz_loadu_ps(lanes, bias + i));
      const __m512 share = fitted(place_of(z, keep), fit<kTanh>().share, keep);
      const __m512 active = _mm512_maskz_mul_ps(kept_at(run.draws, at + i, threshold, lanes), z, share);
      store_16((__m256i)_mm512_cvtneps_pbh(z), lanes, z_to + at + i);
      store_16((__m256i)_mm512_cvtneps_pbh(active), lanes, active_to + at + i);
    }
}

// What one row gives to 16 columns.
struct Given {
  __m512 active, gradient;
};

template <bool kTanh>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Given given_by(const c10::BFloat16* z, const float* slopes,
                                                                 __mmask16 kept, __mmask16 lanes, const __m512& keep) {
  const __m512 x = widened_by_512(z, lanes);
  const Place at = place_of(x, keep);
  return {_mm512_maskz_mul_ps(kept, x, fitted(at, fit<kTanh>().share, keep)),
          _mm512_maskz_mul_ps(kept, _mm512_maskz_loadu_ps(lanes, slopes), fitted(at, fit<kTanh>().slope, keep))};
}

template <bool kTanh, bool kWhole>
XFORMER_BY_BF16_512 void gradients_of(const ActiveRows& run, const c10::BFloat16* z, const float* slopes,
                                      PairedFactor& active, PairedFactor& gradient, c10::BFloat16* rows,
                                      float* bias_gradient) {
  const __m512 keep = _mm512_set1_ps(run.keep);
  const __m256i threshold = _mm256_set1_epi16(static_cast<int16_t>(run.threshold));
  const __m512i turns = turns_of_pairs();
  // Two rows, of which the second may not be there.
  const auto pair = [&](int64_t r, int64_t panel, int64_t width, __mmask16 second) __attribute__((always_inline))
  XFORMER_BY_BF16_512 {
    uint32_t *const to_active = active.pairs(r / 2, panel), *const to_gradient = gradient.pairs(r / 2, panel);
    const int64_t first = r * run.f + panel, below = second == 0 ? first : first + run.f;
    for (int64_t i = 0; i < width; i += 16) {
      const __mmask16 lanes = lanes_of_16<kWhole>(width - i), others = lanes & second;
      fetch_to_read(z + first + i);
      fetch_to_read(z + below + i);
      const Given one = given_by<kTanh>(z + first + i, slopes + first + i,
                                        kept_at(run.draws, first + i, threshold, lanes), lanes, keep),
                  two = given_by<kTanh>(z + below + i, slopes + below + i,
                                        kept_at(run.draws, below + i, threshold, others), others, keep);
      const auto gradients = (__m512i)_mm512_cvtne2ps_pbh(two.gradient, one.gradient);
      _mm512_storeu_si512(to_active + i,
                          _mm512_permutexvar_epi16(turns, (__m512i)_mm512_cvtne2ps_pbh(two.active, one.active)));
      _mm512_storeu_si512(to_gradient + i, _mm512_permutexvar_epi16(turns, gradients));
      store_16(_mm512_castsi512_si256(gradients), lanes, rows + first + i);
      if (others != 0) store_16(_mm512_extracti64x4_epi64(gradients, 1), others, rows + below + i);
      float* const sums = bias_gradient + panel + i;
      const __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, sums), _mm512_add_ps(one.gradient, two.gradient));
      if (kWhole) _mm512_storeu_ps(sums, sum);  // which is read again at once: not by a mask
      else _mm512_mask_storeu_ps(sums, lanes, sum);
    }
  };
  for (int64_t panel = 0, width = 0; panel < run.f; panel += width) {
    width = PairedFactor::panel_width(run.f - panel);
    int64_t r = 0;
    for (; r + 1 < run.rows; r += 2) pair(r, panel, width, kAllLanes);
    if (r < run.rows) pair(r, panel, width, 0);
  }
}

}  // namespace

XFORMER_BY_BF16_512 void active_rows(const ActiveRows& run, const float* sums, const float* bias, c10::BFloat16* z,
                                     c10::BFloat16* active) {
  const auto by = run.f % 16 == 0 ? (run.tanh ? rows_of<true, true> : rows_of<false, true>)
                                  : (run.tanh ? rows_of<true, false> : rows_of<false, false>);
  by(run, sums, bias, z, active);
}

XFORMER_BY_BF16_512 void active_gradient_rows(const ActiveRows& run, const c10::BFloat16* z, const float* slopes,
                                              PairedFactor& active, PairedFactor& gradient, c10::BFloat16* rows,
                                              float* bias_gradient) {
  const auto by = run.f % 16 == 0 ? (run.tanh ? gradients_of<true, true> : gradients_of<false, true>)
                                  : (run.tanh ? gradients_of<true, false> : gradients_of<false, false>);
  by(run, z, slopes, active, gradient, rows, bias_gradient);
}

#else

// For the linker: no product takes pairs here.
void active_rows(const ActiveRows&, const float*, const float*, c10::BFloat16*, c10::BFloat16*) {}
void active_gradient_rows(const ActiveRows&, const c10::BFloat16*, const float*, PairedFactor&, PairedFactor&,
                          c10::BFloat16*, float*) {}

#endif

}  // namespace xformer::kernels::by_512
