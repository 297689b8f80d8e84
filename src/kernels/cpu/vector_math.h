// Functions without a branch or a call, so that loops over them vectorise (float), and the library's own (double, which
// only tests run).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace xformer::kernels {

// e^x within two units in the last place; 0 below -87.3, where the exact value is not a normal number.
[[gnu::always_inline]] inline float exp_of(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves a whole number in the lowest bits
  const float bounded = x > 89.0F ? 89.0F : x;
  const float shifted = bounded * 1.44269504F + kRound, n = shifted - kRound;  // x = n ln 2 + r
  const float r = bounded - n * 0.693359375F - n * -2.12194440e-4F;
  float y = 1.9875691500e-4F;  // Cephes' polynomial of (e^r - 1 - r) / r^2
  y = y * r + 1.3981999507e-3F;
  y = y * r + 8.3334519073e-3F;
  y = y * r + 4.1665795894e-2F;
  y = y * r + 1.6666665459e-1F;
  y = y * r + 5.0000001201e-1F;
  y = y * r * r + r + 1.0F;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + (127U << 23));  // 2^n
  return x < -87.3F ? 0.0F : y * power;
}

[[gnu::always_inline]] inline double exp_of(double x) { return std::exp(x); }

// Factors between logarithms: log2 x = kLog2OfE log x.
inline constexpr double kLog2OfE = 1.44269504088896340736, kLogOf2 = 0.69314718055994530942;

// The polynomial of 2^r for r of -1/2 to 1/2 with the least relative error, the highest power first.
inline constexpr float kExp2Terms[] = {1.5353362e-4F, 1.3398874e-3F, 9.618437e-3F, 5.5503324e-2F,
                                       2.4022648e-1F, 6.931472e-1F,  1.0F};

// 2^x for x up to 127, within one unit in the last place; 0 below -126.5. Fewer instructions than exp_of has: for loops
// whose x are multiplied by something anyway, which can be of this base then. lanes_512.h has the same by hand.
[[gnu::always_inline]] inline float exp2_of(float x) {
  constexpr float kRound = 12582912.0F, kLeast = -127.0F;  // as above; 2^-127 has no bits left, so that it is 0
  const float bounded = kLeast > x ? kLeast : x;
  const float shifted = bounded + kRound, r = bounded - (shifted - kRound);
  float y = kExp2Terms[0];
  y = y * r + kExp2Terms[1];
  y = y * r + kExp2Terms[2];
  y = y * r + kExp2Terms[3];
  y = y * r + kExp2Terms[4];
  y = y * r + kExp2Terms[5];
  y = y * r + kExp2Terms[6];
  return y * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + (127U << 23));
}

[[gnu::always_inline]] inline double exp2_of(double x) { return std::exp2(x); }

// e^x of what is less by -x than the largest, so that it is about 0 at most; 1 at 0. Farther below it is less exact
// than exp_of, for log2 e x is rounded: by 2^-24 |log2 e x| of the result.
template <class Value>
[[gnu::always_inline]] inline Value exp_below(Value x) {
  return exp2_of(x * static_cast<Value>(kLog2OfE));
}

// log x of a normal number x > 0, within 2e-7 of the exact value's size: x = 2^k m with m between the roots of 1/2 and
// 2, and log m = 2 artanh(s), s = (m - 1) / (m + 1), by its series.
[[gnu::always_inline]] inline float log_of(float x) {
  constexpr int32_t kRootOfHalf = 0x3f3504f3;
  const int32_t bits = std::bit_cast<int32_t>(x) - kRootOfHalf, k = bits >> 23;
  const float m = std::bit_cast<float>((bits & 0x7fffff) + kRootOfHalf), s = (m - 1.0F) / (m + 1.0F), z = s * s;
  const float series = s * (2.0F + z * (2.0F / 3 + z * (2.0F / 5 + z * (2.0F / 7 + z * (2.0F / 9)))));
  const auto scale = static_cast<float>(k);
  return scale * 0.693359375F + (series + scale * -2.12194440e-4F);
}

[[gnu::always_inline]] inline double log_of(double x) { return std::log(x); }

// The normal distribution at x: share below it, and density.
template <class Value>
struct NormalAt {
  Value share, density;
};

// |error| of the share below 1.5e-7 (Abramowitz and Stegun 7.1.26); both tails keep their relative precision.
[[gnu::always_inline]] inline NormalAt<float> normal_at(float x) {
  const float z = (x < 0 ? -x : x) * 0.70710678F, t = 1.0F / (1.0F + 0.3275911F * z);
  const float bell = exp_of(-z * z);
  float tail = 1.061405429F;
  tail = tail * t - 1.453152027F;
  tail = tail * t + 1.421413741F;
  tail = tail * t - 0.284496736F;
  tail = tail * t + 0.254829592F;
  tail = 0.5F * tail * t * bell;
  return {x < 0 ? tail : 1.0F - tail, 0.39894228F * bell};
}

[[gnu::always_inline]] inline NormalAt<double> normal_at(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440), 0.39894228040143267794 * std::exp(-x * x / 2)};
}

}  // namespace xformer::kernels
