#include "kernels/cpu/stored.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/cpu/rounding.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

// What is widened comes from memory a block after the other: a line of the cache is asked for so many numbers before.
constexpr int64_t kStep = 32, kAhead = 4096;

// A bf16 number is the upper half of the float that it stands for.
XFORMER_VECTORISED
void widen(int64_t rows, int64_t width, const c10::BFloat16* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const auto* __restrict in = reinterpret_cast<const uint16_t*>(from + r * from_stride);
    float* __restrict out = to + r * to_stride;
    int64_t first = 0;
    for (; first + kStep <= width; first += kStep) {
      __builtin_prefetch(in + first + kAhead, 0, 2);
      for (int64_t i = first; i < first + kStep; ++i) out[i] = std::bit_cast<float>(uint32_t{in[i]} << 16);
    }
    for (int64_t i = first; i < width; ++i) out[i] = std::bit_cast<float>(uint32_t{in[i]} << 16);
  }
}

namespace {

XFORMER_VECTORISED
void narrow_plainly(int64_t rows, int64_t width, const float* from, int64_t from_stride, c10::BFloat16* to,
                    int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = from + r * from_stride;
    auto* __restrict out = reinterpret_cast<uint16_t*>(to + r * to_stride);
    for (int64_t i = 0; i < width; ++i) out[i] = rounded_bits(in[i]);
  }
}

XFORMER_VECTORISED
void narrow_sums_plainly(int64_t rows, int64_t width, const float* from, const float* added, c10::BFloat16* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = from + r * width;
    auto* __restrict out = reinterpret_cast<uint16_t*>(to + r * width);
    for (int64_t i = 0; i < width; ++i) out[i] = rounded_bits(in[i] + added[i]);
  }
}

template <class Value>
[[gnu::always_inline]] inline Value factor_of_row(const Value* divisor, const bool* valid, int64_t r) {
  return divisor[r] == 0 || (valid != nullptr && !valid[r]) ? 0 : 1 / divisor[r];
}

template <class Value>
[[gnu::always_inline]] inline void quotients(int64_t rows, int64_t width, const Value* from, int64_t from_stride,
                                             const Value* divisor, const bool* valid, Value* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    const Value factor = factor_of_row(divisor, valid, r);
    if (factor == 0) std::fill_n(to, width, Value(0));
    else
      for (int64_t i = 0; i < width; ++i) to[i] = from[i] * factor;
  }
}

XFORMER_VECTORISED
void rounded_quotients_plainly(int64_t rows, int64_t width, const float* from, int64_t from_stride,
                               const float* divisor, const bool* valid, c10::BFloat16* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float factor = factor_of_row(divisor, valid, r);
    const float* __restrict in = from + r * from_stride;
    auto* __restrict out = reinterpret_cast<uint16_t*>(to + r * to_stride);
    const uint16_t kept = factor == 0 ? 0 : 0xFFFF;  // whatever lies there, also NaN
    for (int64_t i = 0; i < width; ++i) out[i] = static_cast<uint16_t>(rounded_bits(in[i] * factor) & kept);
  }
}

#ifdef XFORMER_BY_BF16_512
XFORMER_BY_BF16_512
void rounded_quotients_by_512(int64_t rows, int64_t width, const float* from, int64_t from_stride, const float* divisor,
                              const bool* valid, c10::BFloat16* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    const float factor = factor_of_row(divisor, valid, r);
    const __m512 factors = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < width; i += 32) {
      const __mmask32 lanes = lanes32_of(width - i);
      // By a mask, for what a row without a factor holds may be no number.
      const Lanes32 x = floats_by_512(from + i, factor == 0 ? __mmask32{0} : lanes);
      store_rounded({_mm512_mul_ps(x.low, factors), _mm512_mul_ps(x.high, factors)}, lanes, to + i);
    }
  }
}

XFORMER_BY_BF16_512
void narrow_sums_by_512(int64_t rows, int64_t width, const float* from, const float* added, c10::BFloat16* to) {
  for (int64_t r = 0; r < rows; ++r, from += width, to += width)
    for (int64_t i = 0; i < width; i += 32) {
      const __mmask32 lanes = lanes32_of(width - i);
      const Lanes32 x = floats_by_512(from + i, lanes), more = floats_by_512(added + i, lanes);
      store_rounded({_mm512_add_ps(x.low, more.low), _mm512_add_ps(x.high, more.high)}, lanes, to + i);
    }
}

XFORMER_BY_BF16_512
void narrow_by_512(int64_t rows, int64_t width, const float* from, int64_t from_stride, c10::BFloat16* to,
                   int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* const in = from + r * from_stride;
    c10::BFloat16* const out = to + r * to_stride;
    int64_t i = 0;
    for (; i + 32 <= width; i += 32)
      _mm512_storeu_si512(out + i, rounded_by_512(_mm512_loadu_ps(in + i), _mm512_loadu_ps(in + i + 16)));
    for (; i < width; i += 16) {
      const auto wanted = static_cast<__mmask16>((1U << std::min<int64_t>(16, width - i)) - 1);
      const __m512i rounded = rounded_by_512(_mm512_maskz_loadu_ps(wanted, in + i), _mm512_setzero_ps());
      _mm512_mask_storeu_epi16(out + i, wanted, rounded);
    }
  }
}
#else
constexpr auto narrow_by_512 = narrow_plainly;
constexpr auto rounded_quotients_by_512 = rounded_quotients_plainly;
constexpr auto narrow_sums_by_512 = narrow_sums_plainly;
#endif

}  // namespace

void narrow(int64_t rows, int64_t width, const float* from, int64_t from_stride, c10::BFloat16* to, int64_t to_stride) {
  if (from_stride == width && to_stride == width) width *= std::exchange(rows, 1);
  return (has_bf16_512() ? narrow_by_512 : narrow_plainly)(rows, width, from, from_stride, to, to_stride);
}

XFORMER_VECTORISED
void quotient_rows(int64_t rows, int64_t width, const float* from, int64_t from_stride, const float* divisor,
                   const bool* valid, float* to, int64_t to_stride) {
  quotients(rows, width, from, from_stride, divisor, valid, to, to_stride);
}
void quotient_rows(int64_t rows, int64_t width, const float* from, int64_t from_stride, const float* divisor,
                   const bool* valid, c10::BFloat16* to, int64_t to_stride) {
  (has_bf16_512() ? rounded_quotients_by_512 : rounded_quotients_plainly)(rows, width, from, from_stride, divisor,
                                                                          valid, to, to_stride);
}
void quotient_rows(int64_t rows, int64_t width, const double* from, int64_t from_stride, const double* divisor,
                   const bool* valid, double* to, int64_t to_stride) {
  quotients(rows, width, from, from_stride, divisor, valid, to, to_stride);
}

void narrow_sums(int64_t rows, int64_t width, const float* from, const float* added, c10::BFloat16* to) {
  return (has_bf16_512() ? narrow_sums_by_512 : narrow_sums_plainly)(rows, width, from, added, to);
}

}  // namespace xformer::kernels
