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

// As bf16 numbers. Those below 2^-126 are rare: what rounds them is kept out of loops, whose registers it would take.
[[gnu::cold, gnu::noinline]] inline void round_by_bits(const float* numbers, uint16_t* rounded) {
  for (int i = 0; i < 32; ++i) rounded[i] = rounded_bits(numbers[i]);
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512i rounded_by_512(const __m512& low, const __m512& high) {
  constexpr int kBelowNormal = 0x20;
  const __mmask16 low_tiny = _mm512_fpclass_ps_mask(low, kBelowNormal),
                  high_tiny = _mm512_fpclass_ps_mask(high, kBelowNormal);
  if (__builtin_expect(_kortestz_mask16_u8(low_tiny, high_tiny), 1)) return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  alignas(64) float numbers[32];
  alignas(64) uint16_t rounded[32];
  _mm512_store_ps(numbers, low);
  _mm512_store_ps(numbers + 16, high);
  round_by_bits(numbers, rounded);
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

// 32 numbers as bf16 falls apart, by one instruction each: those at even places and those at odd ones.
struct Apart32 {
  __m512 even, odd;
};
struct LanesApart {
  __mmask32 all;
  __mmask16 even, odd;
};
// The lanes of a step of 32 of which `left` numbers are left, at most 32.
[[nodiscard]] inline LanesApart lanes_apart_of(int64_t left) {
  return {lanes32_of(left), lanes_of((left + 1) / 2), lanes_of(left / 2)};
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 apart_by_512(const __m512i& bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 apart_by_512(const c10::BFloat16* from, __mmask32 lanes) {
  return apart_by_512(_mm512_maskz_loadu_epi16(lanes, from));
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline Apart32 apart_by_512(const float* from, __mmask32 lanes) {
  const Lanes32 x = floats_by_512(from, lanes);
  const __m512i places = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return {_mm512_permutex2var_ps(x.low, places, x.high),
          _mm512_permutex2var_ps(x.low, _mm512_add_epi32(places, _mm512_set1_epi32(1)), x.high)};
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void put_together(const Apart32& x, __mmask32 lanes, float* to) {
  const __m512i places = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  _mm512_mask_storeu_ps(to, low_of(lanes), _mm512_permutex2var_ps(x.even, places, x.odd));
  _mm512_mask_storeu_ps(to + 16, high_of(lanes),
                        _mm512_permutex2var_ps(x.even, _mm512_add_epi32(places, _mm512_set1_epi32(8)), x.odd));
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512i rounded_in_order(const Apart32& x) {
  return _mm512_permutexvar_epi16(turns_of_pairs(), rounded_by_512(x.even, x.odd));
}
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void round_together(const Apart32& x, __mmask32 lanes,
                                                                      c10::BFloat16* to) {
  store_bits(rounded_in_order(x), lanes, to);
}
#endif

}  // namespace xformer::kernels
