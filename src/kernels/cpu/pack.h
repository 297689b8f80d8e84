// Matrices copied to where products read them fastest: one row after the other in a small place, transposed, scaled, or
// with bf16 in pairs.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// to [rows, columns] = factor * from; strides in elements.
void pack_rows(int64_t rows, int64_t columns, float factor, const float* from, int64_t stride, float* to,
               int64_t to_stride);
// The same of a matrix that is stored [columns, rows].
void pack_transposed(int64_t rows, int64_t columns, float factor, const float* from, int64_t stride, float* to,
                     int64_t to_stride);
void pack_transposed(int64_t rows, int64_t columns, double factor, const double* from, int64_t stride, double* to,
                     int64_t to_stride);

// Pairs of rows interleaved: to [(rows + 1) / 2, columns, 2], strides of `to` in pairs; a last row without a partner
// gets zeros.
void pack_pairs(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride, c10::BFloat16* to,
                int64_t to_stride);
// The same of a matrix that is stored [columns, rows].
void pack_pairs_transposed(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride, c10::BFloat16* to,
                           int64_t to_stride);
// pack_pairs() of floats, rounded on the way (rounding.h).
void pack_rounded_pairs(int64_t rows, int64_t columns, const float* from, int64_t stride, c10::BFloat16* to,
                        int64_t to_stride);

}  // namespace xformer::kernels
