// float -> bf16, to the nearest, ties to even; NaN stays NaN. And by AVX-512 in registers, both ways.
//
// Processors with AVX-512 and bf16 have an instruction for 32 numbers; by bits it is eight instructions for 16. It
// takes numbers below 2^-126 for zeros, so where there are any, these 32 go by bits.
#pragma once

#include <c10/util/BFloat16.h>

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
// 32 numbers, those of `low` first.
struct Lanes32 {
  __m512 low, high;
};
// The lanes of a step of 32 of which `left` numbers are left.
[[nodiscard]] inline __mmask32 lanes32_of(int64_t left) {
  return left >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1U << left) - 1);
}
[[nodiscard]] inline __mmask16 low_of(__mmask32 lanes) { return static_cast<__mmask16>(lanes & 0xFFFFU); }
[[nodiscard]] inline __mmask16 high_of(__mmask32 lanes) { return static_cast<__mmask16>(lanes >> 16); }

// bf16 numbers; 0 in lanes that are not there, whatever lies behind them.
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 widened_by_512(const c10::BFloat16* from, __mmask16 lanes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from)), 16));
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Lanes32 widened_by_512(const __m512i& bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits)), 16)),
          _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1)), 16))};
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Lanes32 widened_by_512(const c10::BFloat16* from, __mmask32 lanes) {
  return widened_by_512(_mm512_maskz_loadu_epi16(lanes, from));
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Lanes32 floats_by_512(const float* from, __mmask32 lanes) {
  return {_mm512_maskz_loadu_ps(low_of(lanes), from), _mm512_maskz_loadu_ps(high_of(lanes), from + 16)};
}

// Loops over rows that lie in memory ask for what they will read so many numbers farther on: it takes longer to come
// than the few instructions between two rows. (g++ 12 leaves out calls of a function that does nothing else, so this is
// part of its callers.)
inline constexpr int64_t kFetchedAhead = 2048;
[[gnu::always_inline]] inline void fetch_to_read(const c10::BFloat16* from) {
  __builtin_prefetch(from + kFetchedAhead, 0, 2);
}

// As bf16 numbers.
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
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_bits(const __m512i& numbers, __mmask32 lanes,
                                                                  c10::BFloat16* to) {
  if (lanes == ~__mmask32{0}) _mm512_storeu_si512(to, numbers);  // by a mask it is many times slower
  else _mm512_mask_storeu_epi16(to, lanes, numbers);
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void store_rounded(const Lanes32& x, __mmask32 lanes,
                                                                     c10::BFloat16* to) {
  store_bits(rounded_by_512(x.low, x.high), lanes, to);
}
#endif

}  // namespace xformer::kernels
