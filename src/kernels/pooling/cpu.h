// Loops of pooling that the compiler vectorises, and of bf16 by AVX-512.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// Rows of `columns` neighbours, `stride` elements apart; those with a false flag do not count (nullptr: all do).
struct RowSet {
  int64_t rows, stride, columns;
  const bool* flags;

  [[nodiscard]] bool counts(int64_t row) const { return flags == nullptr || flags[row]; }
};

// out = the sum of the rows that count; how many they are.
int64_t sum_rows(const float* x, const RowSet& set, float* out);
int64_t sum_rows(const double* x, const RowSet& set, double* out);
// Writes factor * row to every row of out that counts, zeros to the others.
void spread_row(const float* row, float factor, const RowSet& set, float* out);
void spread_row(const double* row, double factor, const RowSet& set, double* out);
// Writes past's rows, `past_stride` apart, to those of out, with factor * row added where they count.
void add_spread_row(const float* past, int64_t past_stride, const float* row, float factor, const RowSet& set,
                    float* out);
void add_spread_row(const double* past, int64_t past_stride, const double* row, double factor, const RowSet& set,
                    double* out);

// Where has_bf16_512() (kernels/cpu/lanes_512.h).
namespace by_512 {
int64_t sum_rows(const c10::BFloat16* x, const RowSet& set, float* out);
void add_spread_row(const c10::BFloat16* past, int64_t past_stride, const float* row, float factor, const RowSet& set,
                    c10::BFloat16* out);
}  // namespace by_512

}  // namespace xformer::kernels
