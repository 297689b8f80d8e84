// The exponential of loops over weights, as the loops run it: in whole steps, in registers and in what is left.
#include "kernels/cpu/vector_math.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/cpu.h"

namespace xformer::kernels {

namespace {

std::vector<float> powers_of_two(std::vector<float> of) {
  row_weights(of.data(), static_cast<int64_t>(of.size()), {1, 0, nullptr, 0, 1}, of.data());
  return of;
}

// In units of the last place of what is exact.
double units_off(float got, float x) {
  const double exact = std::exp2(static_cast<double>(x));
  const auto nearest = static_cast<float>(exact);
  const float next = std::nextafter(nearest, std::numeric_limits<float>::infinity());
  return std::abs(static_cast<double>(got) - exact) / (static_cast<double>(next) - static_cast<double>(nearest));
}

}  // namespace

TEST_CASE("powers of two lie within a unit in the last place, over all exponents") {
  std::vector<float> x;
  for (int i = -126 * 4096; i <= 127 * 4096; ++i) x.push_back(static_cast<float>(i) / 4096 + 1e-5F);
  x.back() = 127;
  for (uint32_t bits = 0; bits < 0x3f800000; bits += 4999) {  // numbers near 0, of both signs
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-std::bit_cast<float>(bits));
  }
  const std::vector<float> got = powers_of_two(x);
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, units_off(got[i], x[i]));
  CHECK(most < 1);
  CHECK(most > 0.5);  // one that looked at nothing would find less than rounding alone
}

TEST_CASE("powers of two are whole where exponents are, zero far below, and no number for none") {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (int exponent = -126; exponent <= 127; ++exponent)
    CHECK(powers_of_two({static_cast<float>(exponent)})[0] == std::ldexp(1.0F, exponent));
  // A row longer than a step, one of a register, and one number, so that every loop meets them.
  for (const size_t count : {97, 16, 1})
    for (const float x : {-127.0F, -128.5F, -1e5F, -3e38F, -kInfinite}) {
      const std::vector<float> got = powers_of_two(std::vector<float>(count, x));
      CHECK(std::all_of(got.begin(), got.end(), [](float y) { return y == 0 && !std::signbit(y); }));
    }
  for (const size_t count : {97, 16, 1}) {
    const std::vector<float> got = powers_of_two(std::vector<float>(count, NAN));
    CHECK(std::all_of(got.begin(), got.end(), [](float y) { return std::isnan(y); }));
  }
}

}  // namespace xformer::kernels
