// What linear does to rows beside products.
#include "kernels/cpu/vectorised.h"
#include "kernels/linear/cpu.h"

namespace xformer::kernels {

namespace {

template <class Value>
[[gnu::always_inline]] inline void add_to(const Value* __restrict row, int64_t width, Value* __restrict sums) {
  for (int64_t i = 0; i < width; ++i) sums[i] += row[i];
}

}  // namespace

XFORMER_VECTORISED
void add_rows(const float* rows, int64_t count, int64_t width, float* sums) {
  for (int64_t r = 0; r < count; ++r) add_to(rows + r * width, width, sums);
}
void add_rows(const double* rows, int64_t count, int64_t width, double* sums) {
  for (int64_t r = 0; r < count; ++r) add_to(rows + r * width, width, sums);
}

}  // namespace xformer::kernels
