#include "kernels/cpu/add_rows.h"

#include <algorithm>

#include "kernels/cpu/stored_lanes.h"

namespace xformer::kernels {

namespace {

// A few columns at a time, whose sums stay in registers from the first row to the last.
template <int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void add_to(const Stored* rows, int64_t stride, int64_t count, int64_t width,
                                          Value* sums) {
  constexpr int64_t kColumns = 4;  // vectors
  int64_t i = 0;
  SumRegisters<Value, kRegister> x, sum[kColumns];
  for (; i + kColumns * kSumLanes <= width; i += kColumns * kSumLanes) {
    for (int64_t c = 0; c < kColumns; ++c) sum[c].load_from(sums + i + c * kSumLanes);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < kColumns; ++c) {
        fetch(rows + r * stride + i + c * kSumLanes, x);
        sum[c] += x;
      }
    for (int64_t c = 0; c < kColumns; ++c) sum[c].store_to(sums + i + c * kSumLanes);
  }
  for (int64_t r = 0; i < width && r < count; ++r)
    for (int64_t j = i; j < width; ++j) sums[j] += static_cast<Value>(rows[r * stride + j]);
}

template <class Value>
void repeat(const Value* row, int64_t count, int64_t width, Value* rows) {
  for (int64_t r = 0; r < count; ++r) std::copy_n(row, width, rows + r * width);
}

}  // namespace

void repeat_row(const float* row, int64_t count, int64_t width, float* rows) { repeat(row, count, width, rows); }
void repeat_row(const double* row, int64_t count, int64_t width, double* rows) { repeat(row, count, width, rows); }

XFORMER_VECTORISED_BY_REGISTER(void, add_rows,
                               (const float* rows, int64_t stride, int64_t count, int64_t width, float* sums),
                               (rows, stride, count, width, sums), add_to<kRegister>(rows, stride, count, width, sums))
XFORMER_VECTORISED_BY_REGISTER(void, add_rows,
                               (const c10::BFloat16* rows, int64_t stride, int64_t count, int64_t width, float* sums),
                               (rows, stride, count, width, sums), add_to<kRegister>(rows, stride, count, width, sums))
void add_rows(const double* rows, int64_t stride, int64_t count, int64_t width, double* sums) {
  add_to<kPlainRegister>(rows, stride, count, width, sums);
}

}  // namespace xformer::kernels
