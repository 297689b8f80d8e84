#include "kernels/cpu/vectorised.h"
#include "kernels/token_convolution/cpu.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kColumns = 32;  // sums side by side, in registers

template <class Value>
[[gnu::always_inline]] inline void convolve(const Value* x, int64_t stride, int64_t columns, const Value* w,
                                            int64_t taps, const Value* base, Value* out) {
  int64_t c = 0;
  for (; c + kColumns <= columns; c += kColumns) {
    Value sums[kColumns];
    for (int64_t lane = 0; lane < kColumns; ++lane) sums[lane] = base == nullptr ? Value(0) : base[c + lane];
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t lane = 0; lane < kColumns; ++lane) sums[lane] += w[t] * x[t * stride + c + lane];
    for (int64_t lane = 0; lane < kColumns; ++lane) out[c + lane] = sums[lane];
  }
  for (; c < columns; ++c) {
    Value sum = base == nullptr ? Value(0) : base[c];
    for (int64_t t = 0; t < taps; ++t) sum += w[t] * x[t * stride + c];
    out[c] = sum;
  }
}

template <class Value>
[[gnu::always_inline]] inline void correlate(const Value* slope, const Value* x, int64_t stride, int64_t columns,
                                             int64_t taps, Value* sums) {
  for (int64_t t = 0; t < taps; ++t) {
    const Value* const row = x + t * stride;
    Value lanes[kColumns] = {}, tail = 0;
    int64_t c = 0;
    for (; c + kColumns <= columns; c += kColumns)
      for (int64_t lane = 0; lane < kColumns; ++lane) lanes[lane] += slope[c + lane] * row[c + lane];
    for (; c < columns; ++c) tail += slope[c] * row[c];
    for (int64_t width = kColumns / 2; width > 0; width /= 2)
      for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    sums[t] += lanes[0] + tail;
  }
}

}  // namespace

XFORMER_VECTORISED
void convolve_row(const float* x, int64_t stride, int64_t columns, const float* w, int64_t taps, const float* base,
                  float* out) {
  convolve(x, stride, columns, w, taps, base, out);
}
void convolve_row(const double* x, int64_t stride, int64_t columns, const double* w, int64_t taps, const double* base,
                  double* out) {
  convolve(x, stride, columns, w, taps, base, out);
}

XFORMER_VECTORISED
void correlate_row(const float* slope, const float* x, int64_t stride, int64_t columns, int64_t taps, float* sums) {
  correlate(slope, x, stride, columns, taps, sums);
}
void correlate_row(const double* slope, const double* x, int64_t stride, int64_t columns, int64_t taps, double* sums) {
  correlate(slope, x, stride, columns, taps, sums);
}

}  // namespace xformer::kernels
