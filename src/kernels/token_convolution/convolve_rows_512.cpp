// Rows of the convolution in bf16 by the instruction that multiplies pairs and adds them in float: convolving, pairs
// are two rows of a column; correlating, two columns of a row, as they lie.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/rounding.h"
#include "kernels/token_convolution/cpu.h"

namespace xformer::kernels::by_512 {

#ifdef XFORMER_BY_BF16_512

namespace {

XFORMER_BY_BF16_512 [[gnu::always_inline]] inline __m512 with_pairs(const __m512& sum, const __m512i& a,
                                                                    const __m512i& b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

// `kVectors` times 16 columns, the last of them in these lanes. Loops over sums are unrolled: they are registers.
template <int64_t kVectors>
XFORMER_BY_BF16_512 [[gnu::always_inline]] inline void convolve_columns(const uint32_t* x, int64_t rows,
                                                                        int64_t columns, const uint16_t* w,
                                                                        int64_t taps, __mmask16 last,
                                                                        Rows<const c10::BFloat16> base,
                                                                        Rows<float> out) {
  const auto lanes_at = [&](int64_t v) { return v + 1 < kVectors ? kAllLanes : last; };
  for (int64_t first = 0; first < rows; first += kPairedRows) {
    __m512 sums[kPairedRows][kVectors];
#pragma GCC unroll 16
    for (auto& row : sums)
      for (__m512& sum : row) sum = _mm512_setzero_ps();
    const uint32_t* pairs = x + first / 2 * columns;
    for (int64_t t = 0; t < taps + kPairedRows - 1; t += 2, pairs += columns) {
      __m512i row[kVectors];
      for (int64_t v = 0; v < kVectors; ++v) row[v] = _mm512_maskz_loadu_epi32(lanes_at(v), pairs + 16 * v);
#pragma GCC unroll 16
      for (int64_t r = 0; r < kPairedRows; ++r) {
        uint32_t pair = 0;
        std::memcpy(&pair, w + t - r, sizeof(pair));
        const __m512i weights = _mm512_set1_epi32(static_cast<int>(pair));
        for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = with_pairs(sums[r][v], row[v], weights);
      }
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < kPairedRows; ++r) {
      if (first + r == rows) break;
      for (int64_t v = 0; v < kVectors; ++v) {
        __m512 sum = sums[r][v];
        if (base.data != nullptr)
          sum = _mm512_add_ps(sum, widened_by_512(base.data + (first + r) * base.stride + 16 * v, lanes_at(v)));
        _mm512_mask_storeu_ps(out.data + (first + r) * out.stride + 16 * v, lanes_at(v), sum);
      }
    }
  }
}

}  // namespace

XFORMER_BY_BF16_512 void convolve_rows(const c10::BFloat16* x, int64_t rows, int64_t columns, const c10::BFloat16* w,
                                       int64_t taps, Rows<const c10::BFloat16> base, Rows<float> out) {
  const auto* const pairs = reinterpret_cast<const uint32_t*>(x);
  const auto* const kernel = reinterpret_cast<const uint16_t*>(w);
  for (int64_t c = 0; c < columns; c += 32) {
    const int64_t left = columns - c;
    const Rows<const c10::BFloat16> from{base.data == nullptr ? nullptr : base.data + c, base.stride};
    const Rows<float> to{out.data + c, out.stride};
    if (left > 16) convolve_columns<2>(pairs + c, rows, columns, kernel, taps, lanes_of(left - 16), from, to);
    else convolve_columns<1>(pairs + c, rows, columns, kernel, taps, lanes_of(left), from, to);
  }
}

// kCorrelatedTaps sums stay in registers while all rows go by: a sum waits some eleven cycles for the one before it.
XFORMER_BY_BF16_512 void correlate_rows(Rows<const c10::BFloat16> slope, Rows<const c10::BFloat16> x, int64_t rows,
                                        int64_t columns, int64_t taps, float* sums) {
  for (int64_t first = 0; first < taps; first += kCorrelatedTaps) {
    __m512 all[kCorrelatedTaps];
#pragma GCC unroll 18
    for (__m512& one : all) one = _mm512_setzero_ps();
    for (int64_t c = 0; c < columns; c += 32) {
      const __mmask32 lanes = lanes32_of(columns - c);
      for (int64_t i = 0; i < rows; ++i) {
        const __m512i s = _mm512_maskz_loadu_epi16(lanes, slope.data + i * slope.stride + c);
        const c10::BFloat16* row = x.data + (first + i) * x.stride + c;
#pragma GCC unroll 18
        for (int64_t t = 0; t < kCorrelatedTaps; ++t, row += x.stride)
          all[t] = with_pairs(all[t], s, _mm512_maskz_loadu_epi16(lanes, row));
      }
    }
#pragma GCC unroll 18
    for (int64_t t = 0; t < kCorrelatedTaps; ++t)
      if (first + t < taps) sums[first + t] += _mm512_reduce_add_ps(all[t]);
  }
}

#else

// For the linker: has_bf16_512() is false here.
void convolve_rows(const c10::BFloat16*, int64_t, int64_t, const c10::BFloat16*, int64_t, Rows<const c10::BFloat16>,
                   Rows<float>) {}
void correlate_rows(Rows<const c10::BFloat16>, Rows<const c10::BFloat16>, int64_t, int64_t, int64_t, float*) {}

#endif

}  // namespace xformer::kernels::by_512
