// Sixteen floats at a time by AVX-512's own instructions, for what g++ makes of no loop: powers of two by one
// instruction, what dropout draws as bits of a mask, lanes that are not there, numbers rounded while they are in
// registers. Functions that call these have the same target and are asked for by has_512() or has_bf16_512().
#pragma once

#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

#ifdef XFORMER_TAKES_512
#include <immintrin.h>
#define XFORMER_BY_512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define XFORMER_BY_BF16_512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

#endif

namespace xformer::kernels {

[[nodiscard]] inline bool has_512() {
#ifdef XFORMER_BY_512
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
#else
  return false;
#endif
}
[[nodiscard]] inline bool has_bf16_512() {
#ifdef XFORMER_BY_512
  static const bool has = has_512() && __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

#ifdef XFORMER_BY_512

inline constexpr __mmask16 kAllLanes = 0xFFFF;
// The lanes of a step of which `left` numbers are left.
[[nodiscard]] inline __mmask16 lanes_of(int64_t left) {
  return left >= 16 ? kAllLanes : static_cast<__mmask16>((1U << left) - 1);
}

// Of 16 numbers of bf16 of each of two rows, behind each other, the order that makes pairs of them.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512i turns_of_pairs() {
  alignas(64) uint16_t order[32];
  for (uint16_t i = 0; i < 16; ++i) order[2 * i] = i, order[2 * i + 1] = static_cast<uint16_t>(16 + i);
  return _mm512_load_si512(order);
}

// exp2_of of each lane, to the bit.
XFORMER_BY_512 [[gnu::always_inline]] inline __m512 exp2_by_512(const __m512& x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(x, n);
  __m512 y = _mm512_set1_ps(kExp2Terms[0]);
  for (int i = 1; i < 7; ++i) y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(kExp2Terms[i]));
  // All but what lies below: no number is one still, and -infinity, whose r is none, becomes 0.
  const __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.5F), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(counts, y, n);
}

// Of these lanes those whose draw dropout keeps.
XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 kept_by_512(const uint16_t* draws, const __m256i& threshold,
                                                                   __mmask16 lanes) {
  return _mm256_mask_cmpge_epu16_mask(lanes, _mm256_maskz_loadu_epi16(lanes, draws), threshold);
}

#endif

}  // namespace xformer::kernels
