// The powers of alpha-entmax (entmax.h). No LibTorch here.
#pragma once

namespace xformer::kernels {

// What a row is raised to: 1 / (alpha - 1) of alpha 2, of 1.5, or of any other.
enum class EntmaxPower { kOne, kTwo, kAny };

[[nodiscard]] constexpr EntmaxPower entmax_power(double alpha) {
  return alpha == 2 ? EntmaxPower::kOne : alpha == 1.5 ? EntmaxPower::kTwo : EntmaxPower::kAny;
}

// Newton's steps to a row's threshold, which takes a few.
inline constexpr int kMostEntmaxSteps = 40;

}  // namespace xformer::kernels
