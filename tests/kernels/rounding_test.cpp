// float <-> bf16 in rows and in pairs of rows: every upper half of a float, every width of a last step.
#include <c10/util/BFloat16.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "kernels/cpu/pack.h"
#include "kernels/cpu/stored.h"

namespace xformer::kernels {

namespace {

// LibTorch's rounding; any NaN for NaN.
bool is_rounded(c10::BFloat16 got, float from) {
  const c10::BFloat16 meant(from);
  if (std::isnan(from)) return std::isnan(static_cast<float>(got));
  return got.x == meant.x;
}

}  // namespace

TEST_CASE("floats are rounded to the nearest bf16, ties to even, and widened again") {
  std::vector<float> numbers;
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t lower : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      numbers.push_back(std::bit_cast<float>(upper << 16 | lower));
  const auto count = static_cast<int64_t>(numbers.size());
  std::vector<c10::BFloat16> rounded(numbers.size());
  narrow(1, count, numbers.data(), count, rounded.data(), count);
  int64_t wrong = 0;
  for (size_t i = 0; i < numbers.size(); ++i) wrong += !is_rounded(rounded[i], numbers[i]);
  CHECK(wrong == 0);
  std::vector<float> wide(numbers.size());
  widen(1, count, rounded.data(), count, wide.data(), count);
  for (size_t i = 0; i < wide.size(); ++i) wrong += std::bit_cast<uint32_t>(wide[i]) != uint32_t{rounded[i].x} << 16;
  CHECK(wrong == 0);
}

TEST_CASE("rows of every width are rounded, packed in pairs and widened, and nothing beside them is touched") {
  constexpr int64_t kGap = 3;
  const c10::BFloat16 untouched(-77.0F);
  for (int64_t width = 1; width <= 100; ++width)
    for (const int64_t rows : {1, 2, 5}) {
      const int64_t stride = width + kGap;
      std::vector<float> from(static_cast<size_t>(rows * stride), NAN);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < width; ++i)
          from[static_cast<size_t>(r * stride + i)] = 1.0F / static_cast<float>(3 + r * 131 + i);
      std::vector<c10::BFloat16> out(from.size(), untouched);
      narrow(rows, width, from.data(), stride, out.data(), stride);
      std::vector<float> wide(from.size(), -77.0F);
      widen(rows, width, out.data(), stride, wide.data(), stride);
      const int64_t pair_rows = (rows + 1) / 2;
      std::vector<c10::BFloat16> pairs(static_cast<size_t>(pair_rows * 2 * stride), untouched), meant = pairs;
      pack_rounded_pairs(rows, width, from.data(), stride, pairs.data(), stride);
      pack_pairs(rows, width, out.data(), stride, meant.data(), stride);
      int64_t wrong = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < stride; ++i) {
          const auto at = static_cast<size_t>(r * stride + i);
          wrong += i < width ? out[at].x != c10::BFloat16(from[at]).x : out[at].x != untouched.x;
          wrong += wide[at] != static_cast<float>(out[at]);
        }
      for (size_t i = 0; i < pairs.size(); ++i) wrong += pairs[i].x != meant[i].x;
      INFO(rows << " rows of " << width);
      CHECK(wrong == 0);
    }
}

TEST_CASE("rows are divided before they are rounded, and those without a divisor are zeros, whatever they hold") {
  for (const int64_t width : {1, 15, 32, 33, 100}) {
    constexpr int64_t kRows = 5, kGap = 3;
    std::vector<float> from(static_cast<size_t>(kRows * width));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i) - 17;
    std::fill_n(from.begin() + width, width, NAN);      // divided by 0
    std::fill_n(from.begin() + 3 * width, width, NAN);  // does not count
    const float divisors[kRows] = {2, 0, -3, 7, 0.5F};
    const bool valid[kRows] = {true, true, true, false, true};
    const auto room = static_cast<size_t>(kRows * (width + kGap));
    std::vector<c10::BFloat16> rounded(room, c10::BFloat16(99.0F));
    std::vector<float> to(room, 99), in_place(room, 99);
    quotient_rows(kRows, width, from.data(), width, divisors, valid, rounded.data(), width + kGap);
    quotient_rows(kRows, width, from.data(), width, divisors, valid, to.data(), width + kGap);
    for (int64_t r = 0; r < kRows; ++r)
      std::copy_n(&from[static_cast<size_t>(r * width)], width, &in_place[static_cast<size_t>(r * (width + kGap))]);
    quotient_rows(kRows, width, in_place.data(), width + kGap, divisors, valid, in_place.data(), width + kGap);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t i = 0; i < width + kGap; ++i) {
        const auto at = static_cast<size_t>(r * (width + kGap) + i);
        const bool zero = r == 1 || r == 3;
        const float meant = i >= width ? 99.0F : zero ? 0.0F : from[static_cast<size_t>(r * width + i)] / divisors[r];
        CAPTURE(width, r, i);
        CHECK(std::abs(static_cast<float>(rounded[at]) - meant) <= std::abs(meant) / 256);
        CHECK(std::abs(to[at] - meant) <= std::abs(meant) * 2e-7F);
        CHECK(in_place[at] == to[at]);
      }
  }
}

}  // namespace xformer::kernels
