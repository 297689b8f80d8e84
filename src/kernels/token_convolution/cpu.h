// Loops of the convolution that the compiler vectorises, and of bf16 by its products of pairs.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// Rows of a matrix, `stride` elements apart.
template <class Number>
struct Rows {
  Number* data;
  int64_t stride;
};

// Rows computed at once, of floats and of pairs. A kernel w lies between as many zeros in front and behind, and what is
// read of x ends so many rows behind what the last row needs, in any finite numbers.
inline constexpr int64_t kConvolvedRows = 4, kPairedRows = 8;

// out row i = sum over t < taps of w[t] x row i + t (+ base row i unless nullptr), for i < rows.
void convolve_rows(Rows<const float> x, int64_t rows, int64_t columns, const float* w, int64_t taps,
                   Rows<const float> base, Rows<float> out);
void convolve_rows(Rows<const double> x, int64_t rows, int64_t columns, const double* w, int64_t taps,
                   Rows<const double> base, Rows<double> out);
// sums[t] += sum over i < rows of slope row i . x row i + t, for t < taps; x has taps - 1 rows more.
void correlate_rows(Rows<const float> slope, Rows<const float> x, int64_t rows, int64_t columns, int64_t taps,
                    float* sums);
void correlate_rows(Rows<const double> slope, Rows<const double> x, int64_t rows, int64_t columns, int64_t taps,
                    double* sums);

// Where has_bf16_512() (kernels/cpu/lanes_512.h); sums are in float.
namespace by_512 {
// x in pairs of rows, [.., columns, 2] (kernels/cpu/pack.h), w rounded.
void convolve_rows(const c10::BFloat16* x, int64_t rows, int64_t columns, const c10::BFloat16* w, int64_t taps,
                   Rows<const c10::BFloat16> base, Rows<float> out);
// x has kCorrelatedTaps rows more, of any finite numbers.
inline constexpr int64_t kCorrelatedTaps = 18;
void correlate_rows(Rows<const c10::BFloat16> slope, Rows<const c10::BFloat16> x, int64_t rows, int64_t columns,
                    int64_t taps, float* sums);
}  // namespace by_512

}  // namespace xformer::kernels
