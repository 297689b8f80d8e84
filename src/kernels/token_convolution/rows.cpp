#include <cstring>

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

// kTaps sums of kLanes columns stay in registers while all rows go by: a row of slopes is loaded once for all of them.
constexpr int64_t kLanes = 8;
constexpr int64_t kTaps = 7;  // 35 taps, Nystromformer's in LRA, are five times as many

template <int64_t taps, class Value>
[[gnu::always_inline]] inline void correlate_taps(const Value* slope, const Value* x, int64_t rows, int64_t columns,
                                                  Value* sums) {
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    typedef Value Lanes __attribute__((vector_size(kLanes * sizeof(Value))));
    Lanes wide[taps] = {};
    for (int64_t i = 0; i < rows; ++i) {
      Lanes s, v;
      std::memcpy(&s, slope + i * columns + c, sizeof(s));
      for (int64_t t = 0; t < taps; ++t) {
        std::memcpy(&v, x + (i + t) * columns + c, sizeof(v));
        wide[t] += s * v;
      }
    }
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[t] += wide[t][lane];
  }
  for (; c < columns; ++c)
    for (int64_t t = 0; t < taps; ++t) {
      Value sum = 0;
      for (int64_t i = 0; i < rows; ++i) sum += slope[i * columns + c] * x[(i + t) * columns + c];
      sums[t] += sum;
    }
}

template <class Value>
[[gnu::always_inline]] inline void correlate(const Value* slope, const Value* x, int64_t rows, int64_t columns,
                                             int64_t taps, Value* sums) {
  int64_t t = 0;
  for (; t + kTaps <= taps; t += kTaps) correlate_taps<kTaps>(slope, x + t * columns, rows, columns, sums + t);
  for (; t < taps; ++t) correlate_taps<1>(slope, x + t * columns, rows, columns, sums + t);
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
void correlate_rows(const float* slope, const float* x, int64_t rows, int64_t columns, int64_t taps, float* sums) {
  correlate(slope, x, rows, columns, taps, sums);
}
void correlate_rows(const double* slope, const double* x, int64_t rows, int64_t columns, int64_t taps, double* sums) {
  correlate(slope, x, rows, columns, taps, sums);
}

}  // namespace xformer::kernels
