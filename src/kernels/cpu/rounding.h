// float -> bf16, to the nearest, ties to even; NaN stays NaN.
//
// Processors with AVX-512 and bf16 have an instruction for 32 numbers; by bits it is eight instructions for 16. It
// takes numbers below 2^-126 for zeros, so where there are any, these 32 go by bits.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/lanes_512.h"

namespace xformer::kernels {

// By bits, because LibTorch's rounding has a branch that is not vectorised.
[[gnu::always_inline]] inline uint16_t rounded_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}

#ifdef XFORMER_BY_BF16_512
// 32 bf16 numbers, those of `low` first.
XFORMER_BY_BF16_512 inline __m512i rounded_by_512(const __m512& low, const __m512& high) {
  constexpr int kBelowNormal = 0x20;
  const __mmask16 low_tiny = _mm512_fpclass_ps_mask(low, kBelowNormal),
                  high_tiny = _mm512_fpclass_ps_mask(high, kBelowNormal);
  if (__builtin_expect((low_tiny | high_tiny) == 0, 1)) return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  alignas(64) float numbers[32];
  alignas(64) uint16_t rounded[32];
  _mm512_store_ps(numbers, low);
  _mm512_store_ps(numbers + 16, high);
  for (int i = 0; i < 32; ++i) rounded[i] = rounded_bits(numbers[i]);
  return _mm512_load_si512(rounded);
}
#endif

}  // namespace xformer::kernels
