// Rows of sine_features: sine and cosine of a number by one reduction to an eighth of the circle and two polynomials.
#include <cmath>

#include "kernels/cpu/vectorised.h"
#include "kernels/sine_features/cpu.h"

namespace xformer::kernels {

namespace {

// Up to here a quarter circle's multiples are subtracted exactly (below); beyond, the library reduces.
constexpr float kNear = 8192;

// Coefficients of Cephes' single-precision sine and cosine (Moshier), for |x| <= pi / 4.
[[gnu::always_inline]] inline void circle_at(float y, float amplitude, float* sine, float* cosine) {
  constexpr float kRounds = 12582912;  // 1.5 2^23, added to which a number loses what is behind its point
  constexpr float kQuarters = 0.636619772367581343F;
  // pi / 2 in three parts; the first two have few bits, so that their multiples are exact.
  constexpr float kFirst = 1.5703125F, kSecond = 4.837512969970703125e-4F, kThird = 7.54978994877e-8F;
  const float turned = y * kQuarters + kRounds, quarters = turned - kRounds;
  int32_t quarter;
  std::memcpy(&quarter, &turned, sizeof(quarter));
  const float x = ((y - quarters * kFirst) - quarters * kSecond) - quarters * kThird, z = x * x;
  const float s = x + x * z * (-1.6666654611e-1F + z * (8.3321608736e-3F + z * -1.9515295891e-4F));
  const float c =
      1 - z / 2 + z * z * (4.166664568298827e-2F + z * (-1.388731625493765e-3F + z * 2.443315711809948e-5F));
  const bool odd = (quarter & 1) != 0;
  const float of_sine = odd ? c : s, of_cosine = odd ? s : c;
  *sine = ((quarter & 2) != 0 ? -of_sine : of_sine) * amplitude;
  *cosine = (((quarter + 1) & 2) != 0 ? -of_cosine : of_cosine) * amplitude;
}

template <class Value>
[[gnu::always_inline]] inline void slopes_of(const Value* __restrict gradient, const Value* __restrict features,
                                             int64_t r, Value* __restrict y_gradient) {
  for (int64_t i = 0; i < r; ++i) y_gradient[i] = gradient[i] * features[r + i] - gradient[r + i] * features[i];
}

template <class Value>
void library_row(const Value* y, int64_t r, Value amplitude, Value* features) {
  for (int64_t i = 0; i < r; ++i) {
    const auto exact = static_cast<double>(y[i]);
    features[i] = static_cast<Value>(std::sin(exact)) * amplitude;
    features[r + i] = static_cast<Value>(std::cos(exact)) * amplitude;
  }
}

XFORMER_VECTORISED bool all_near(const float* y, int64_t r) {
  int32_t far = 0;
  for (int64_t i = 0; i < r; ++i) far |= std::fabs(y[i]) > kNear ? 1 : 0;
  return far == 0;
}

XFORMER_VECTORISED void near_row(const float* __restrict y, int64_t r, float amplitude, float* __restrict sines,
                                 float* __restrict cosines) {
  for (int64_t i = 0; i < r; ++i) circle_at(y[i], amplitude, sines + i, cosines + i);
}

}  // namespace

void sine_row(const float* y, int64_t r, float amplitude, float* features) {
  if (all_near(y, r)) near_row(y, r, amplitude, features, features + r);
  else library_row(y, r, amplitude, features);
}
void sine_row(const double* y, int64_t r, double amplitude, double* features) {
  library_row(y, r, amplitude, features);
}

XFORMER_VECTORISED void sine_gradient_row(const float* gradient, const float* features, int64_t r, float* y_gradient) {
  slopes_of(gradient, features, r, y_gradient);
}
XFORMER_VECTORISED void sine_gradient_row(const double* gradient, const double* features, int64_t r,
                                          double* y_gradient) {
  slopes_of(gradient, features, r, y_gradient);
}

}  // namespace xformer::kernels
