// Loops of running maxima that the compiler vectorises: cells of `count` channels.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// out = the larger of each pair, `own` where they are equal. A NaN is larger than all, and stays.
void larger_of(const float* own, const float* before, int64_t count, float* out);
void larger_of(const double* own, const double* before, int64_t count, double* out);
void larger_of(const c10::BFloat16* own, const c10::BFloat16* before, int64_t count, c10::BFloat16* out);
// out = sums where `own` is the larger, 0 elsewhere; sums = what that leaves, and slope.
void take_slopes(const float* own, const float* before, const float* slope, int64_t count, float* sums, float* out);
void take_slopes(const double* own, const double* before, const double* slope, int64_t count, double* sums,
                 double* out);
void take_slopes(const c10::BFloat16* own, const c10::BFloat16* before, const c10::BFloat16* slope, int64_t count,
                 float* sums, c10::BFloat16* out);

}  // namespace xformer::kernels
