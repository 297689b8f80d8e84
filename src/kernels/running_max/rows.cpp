#include "kernels/cpu/stored_lanes.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/running_max/cpu.h"

namespace xformer::kernels {

namespace {

// Without a branch: && and || would keep a loop from being vectorised.
template <class Value>
[[gnu::always_inline]] inline bool replaces(Value x, Value largest) {
  return (x >= largest) | (x != x);
}

template <class Stored>
[[gnu::always_inline]] inline void larger_rows(const Stored* own, const Stored* before, int64_t count,
                                               Stored* __restrict out) {
  for (int64_t c = 0; c < count; ++c) {
    const auto x = widened(own[c]), y = widened(before[c]);
    put_rounded(replaces(x, y) ? x : y, out[c]);
  }
}

template <class Stored, class Value>
[[gnu::always_inline]] inline void slope_rows(const Stored* own, const Stored* before, const Stored* slope,
                                              int64_t count, Value* __restrict sums, Stored* __restrict out) {
  for (int64_t c = 0; c < count; ++c) {
    const bool takes = replaces(widened(own[c]), widened(before[c]));
    const Value sum = sums[c];
    put_rounded(takes ? sum : Value(0), out[c]);
    sums[c] = (takes ? Value(0) : sum) + widened(slope[c]);
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
void larger_of(const c10::BFloat16* own, const c10::BFloat16* before, int64_t count, c10::BFloat16* out) {
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
XFORMER_VECTORISED
void take_slopes(const c10::BFloat16* own, const c10::BFloat16* before, const c10::BFloat16* slope, int64_t count,
                 float* sums, c10::BFloat16* out) {
  slope_rows(own, before, slope, count, sums, out);
}

}  // namespace xformer::kernels
