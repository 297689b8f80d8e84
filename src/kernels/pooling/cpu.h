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
// Adds factor * row to every row of out that counts.
void add_to_rows(const float* row, float factor, const RowSet& set, float* out);
void add_to_rows(const double* row, double factor, const RowSet& set, double* out);

// Where has_bf16_512() (kernels/cpu/lanes_512.h).
namespace by_512 {
int64_t sum_rows(const c10::BFloat16* x, const RowSet& set, float* out);
void add_to_rows(const float* row, float factor, const RowSet& set, c10::BFloat16* out);
}  // namespace by_512

}  // namespace xformer::kernels
