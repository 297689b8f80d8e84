// Numbers as they lie in memory (kernels/cpu/stored.h), one by one or side by side, for loops that are the same for
// float, double and bf16: widened in registers where they are read, and rounded where they are written. Made part of
// vectorised functions.
#pragma once

#include <c10/util/BFloat16.h>

#include <bit>

#include "kernels/cpu/registers.h"
#include "kernels/cpu/rounding.h"

namespace xformer::kernels {

[[gnu::always_inline]] inline float widened(float x) { return x; }
[[gnu::always_inline]] inline double widened(double x) { return x; }
[[gnu::always_inline]] inline float widened(c10::BFloat16 x) { return std::bit_cast<float>(uint32_t{x.x} << 16); }

[[gnu::always_inline]] inline void put_rounded(float x, float& to) { to = x; }
[[gnu::always_inline]] inline void put_rounded(double x, double& to) { to = x; }
[[gnu::always_inline]] inline void put_rounded(float x, c10::BFloat16& to) { to.x = rounded_bits(x); }

// Into Registers.
[[gnu::always_inline]] inline void fetch(const float* from, auto& x) { x.load_from(from); }
[[gnu::always_inline]] inline void fetch(const double* from, auto& x) { x.load_from(from); }
[[gnu::always_inline]] inline void fetch(const c10::BFloat16* from, auto& x) {
  x.load_upper(reinterpret_cast<const uint16_t*>(from));
}

}  // namespace xformer::kernels
