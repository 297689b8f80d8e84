// Rows of numbers on the CPU: their sum, and one of them over and over.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// sums [width] += the sum of `count` rows, `stride` numbers apart, in order.
void add_rows(const c10::BFloat16* rows, int64_t stride, int64_t count, int64_t width, float* sums);
void add_rows(const float* rows, int64_t stride, int64_t count, int64_t width, float* sums);
void add_rows(const double* rows, int64_t stride, int64_t count, int64_t width, double* sums);

// rows [count, width] = `row` [width].
void repeat_row(const float* row, int64_t count, int64_t width, float* rows);
void repeat_row(const double* row, int64_t count, int64_t width, double* rows);

}  // namespace xformer::kernels
