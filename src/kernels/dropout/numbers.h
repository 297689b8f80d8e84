// Which of the 128 bits of which Philox block decide about an element: shared by every kernel that drops, on
// any device.
//
//   key      = derive_seed(run's seed, "dropout")
//   counter  = low: element / 8; high: site << 40 | step
//   draw     = 16 bits: word (element % 8) / 2 of the block, its lower half for even elements, its upper half
//   for odd dropped  when draw < threshold, threshold = round(p * 65536)
#pragma once

#include <cstdint>

namespace xformer::kernels {

inline constexpr int64_t kElementsPerBlock = 8;
inline constexpr int kStepBits = 40;
inline constexpr int64_t kMostSteps = int64_t{1} << kStepBits;         // steps are 0 .. kMostSteps - 1
inline constexpr int64_t kMostSites = int64_t{1} << (63 - kStepBits);  // fits an int64, as tensor arithmetic needs

// p in [0, 1) in steps of 1/65536; 0 drops nothing. At least one draw in 65536 always survives.
[[nodiscard]] constexpr uint32_t dropout_threshold(double p) {
  const auto rounded = static_cast<uint32_t>(p * 65536 + 0.5);
  return rounded < 65535 ? rounded : 65535;
}

// The survivors' factor: the inverse of the share really kept.
[[nodiscard]] constexpr double dropout_scale(uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

[[nodiscard]] constexpr uint64_t dropout_counter_high(int64_t step, int64_t site) {
  return static_cast<uint64_t>(site) << kStepBits | static_cast<uint64_t>(step);
}

}  // namespace xformer::kernels
