#include "kernels/cpu/vectorised.h"
#include "kernels/running_max/cpu.h"

namespace xformer::kernels {

namespace {

// Without a branch: && and || would keep a loop from being vectorised.
template <class Value>
[[gnu::always_inline]] inline bool replaces(Value x, Value largest) {
  return (x >= largest) | (x != x);
}

template <class Value>
[[gnu::always_inline]] inline void larger_rows(const Value* own, const Value* before, int64_t count,
                                               Value* __restrict out) {
  for (int64_t c = 0; c < count; ++c) {
    const Value x = own[c], y = before[c];
    out[c] = replaces(x, y) ? x : y;
  }
}

template <class Value>
[[gnu::always_inline]] inline void slope_rows(const Value* own, const Value* before, const Value* slope, int64_t count,
                                              Value* __restrict sums, Value* __restrict out) {
  for (int64_t c = 0; c < count; ++c) {
    const bool takes = replaces(own[c], before[c]);
    const Value sum = sums[c];
    out[c] = takes ? sum : Value(0);
    sums[c] = (takes ? Value(0) : sum) + slope[c];
  }
}

}  // namespace

XFORMER_VECTORISED
void larger_of(const float* own, const float* before, int64_t count, float* out) {
  larger_rows(own, before, count, out);
}
void larger_of(const double* own, const double* before, int64_t count, double* out) {
  larger_rows(own, before, count, out);
}

XFORMER_VECTORISED
void take_slopes(const float* own, const float* before, const float* slope, int64_t count, float* sums, float* out) {
  slope_rows(own, before, slope, count, sums, out);
}
void take_slopes(const double* own, const double* before, const double* slope, int64_t count, double* sums,
                 double* out) {
  slope_rows(own, before, slope, count, sums, out);
}

}  // namespace xformer::kernels
