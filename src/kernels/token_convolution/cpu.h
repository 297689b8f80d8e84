// Loops of the convolution that the compiler vectorises.
#pragma once

#include <cstdint>

namespace xformer::kernels {

// Rows of a matrix, `stride` elements apart.
template <class Value>
struct Rows {
  Value* data;
  int64_t stride;
};

// Rows computed at once. A kernel lies between as many zeros less one, in front and behind.
inline constexpr int64_t kConvolvedRows = 4;

// out row i = sum over t < taps of w[t] x row i + t (+ base row i unless nullptr), for i < rows; x's rows lie `columns`
// apart, and there are kConvolvedRows - 1 more that anything may stand in. w points at the kernel between its zeros.
void convolve_rows(const float* x, int64_t rows, int64_t columns, const float* w, int64_t taps, Rows<const float> base,
                   Rows<float> out);
void convolve_rows(const double* x, int64_t rows, int64_t columns, const double* w, int64_t taps,
                   Rows<const double> base, Rows<double> out);
// sums[t] += sum over i < rows of slope row i . x row i + t, for t < taps; rows lie `columns` apart, x has taps - 1
// more.
void correlate_rows(const float* slope, const float* x, int64_t rows, int64_t columns, int64_t taps, float* sums);
void correlate_rows(const double* slope, const double* x, int64_t rows, int64_t columns, int64_t taps, double* sums);

}  // namespace xformer::kernels
