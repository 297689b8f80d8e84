// Loops of the convolution that the compiler vectorises.
#pragma once

#include <cstdint>

namespace xformer::kernels {

// out[c] = sum over t < taps of w[t] x[t * stride + c] (+ base[c] unless nullptr), for c < columns; a negative stride
// walks backwards.
void convolve_row(const float* x, int64_t stride, int64_t columns, const float* w, int64_t taps, const float* base,
                  float* out);
void convolve_row(const double* x, int64_t stride, int64_t columns, const double* w, int64_t taps, const double* base,
                  double* out);
// sums[t] += sum over i < rows of slope row i . x row i + t, for t < taps; rows lie `columns` apart, x has taps - 1
// more.
void correlate_rows(const float* slope, const float* x, int64_t rows, int64_t columns, int64_t taps, float* sums);
void correlate_rows(const double* slope, const double* x, int64_t rows, int64_t columns, int64_t taps, double* sums);

}  // namespace xformer::kernels
