// What linear does to rows beside products.
#include <algorithm>

#include "kernels/cpu/vectorised.h"
#include "kernels/linear/cpu.h"

namespace xformer::kernels {

namespace {

// A few columns at a time, whose sums stay in registers from the first row to the last.
template <class Value>
[[gnu::always_inline]] inline void add_to(const Value* rows, int64_t count, int64_t width, Value* sums) {
  constexpr int64_t kColumns = 4;  // vectors
  int64_t i = 0;
  SumLanes<Value> x, sum[kColumns];
  for (; i + kColumns * kSumLanes <= width; i += kColumns * kSumLanes) {
    for (int64_t c = 0; c < kColumns; ++c) load(sums + i + c * kSumLanes, sum[c]);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < kColumns; ++c) {
        load(rows + r * width + i + c * kSumLanes, x);
        sum[c] += x;
      }
    for (int64_t c = 0; c < kColumns; ++c) store(sum[c], sums + i + c * kSumLanes);
  }
  for (int64_t r = 0; i < width && r < count; ++r)
    for (int64_t j = i; j < width; ++j) sums[j] += rows[r * width + j];
}

template <class Value>
void repeat(const Value* row, int64_t count, int64_t width, Value* rows) {
  for (int64_t r = 0; r < count; ++r) std::copy_n(row, width, rows + r * width);
}

}  // namespace

void repeat_row(const float* row, int64_t count, int64_t width, float* rows) { repeat(row, count, width, rows); }
void repeat_row(const double* row, int64_t count, int64_t width, double* rows) { repeat(row, count, width, rows); }

XFORMER_VECTORISED
void add_rows(const float* rows, int64_t count, int64_t width, float* sums) { add_to(rows, count, width, sums); }
void add_rows(const double* rows, int64_t count, int64_t width, double* sums) { add_to(rows, count, width, sums); }

}  // namespace xformer::kernels
