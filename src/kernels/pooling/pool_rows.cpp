#include "kernels/cpu/registers.h"
#include "kernels/pooling/cpu.h"

namespace xformer::kernels {

namespace {

// Sums of `lanes` columns, which stay in registers while the rows go by.
template <int64_t lanes, class Value>
[[gnu::always_inline]] inline void sum_columns(const Value* x, const RowSet& set, Value* out) {
  Registers<Value, lanes, 32> sum = {}, row;
  for (int64_t i = 0; i < set.rows; ++i) {
    if (!set.counts(i)) continue;
    row.load_from(x + i * set.stride);
    sum += row;
  }
  sum.store_to(out);
}

template <class Value>
[[gnu::always_inline]] inline int64_t sum(const Value* x, const RowSet& set, Value* out) {
  constexpr int64_t kWide = 32, kNarrow = 8;
  int64_t c = 0;
  for (; c + kWide <= set.columns; c += kWide) sum_columns<kWide>(x + c, set, out + c);
  for (; c + kNarrow <= set.columns; c += kNarrow) sum_columns<kNarrow>(x + c, set, out + c);
  for (; c < set.columns; ++c) sum_columns<1>(x + c, set, out + c);
  int64_t count = 0;
  for (int64_t i = 0; i < set.rows; ++i) count += set.counts(i) ? 1 : 0;
  return count;
}

template <class Value>
[[gnu::always_inline]] inline void spread(const Value* row, Value factor, const RowSet& set, Value* out) {
  for (int64_t i = 0; i < set.rows; ++i) {
    const Value used = set.counts(i) ? factor : Value(0);
    for (int64_t c = 0; c < set.columns; ++c) out[i * set.stride + c] = used == 0 ? Value(0) : used * row[c];
  }
}

template <class Value>
[[gnu::always_inline]] inline void add(const Value* row, Value factor, const RowSet& set, Value* out) {
  for (int64_t i = 0; i < set.rows; ++i) {
    Value* const to = out + i * set.stride;
    if (set.counts(i))
      for (int64_t c = 0; c < set.columns; ++c) to[c] += factor * row[c];
  }
}

}  // namespace

XFORMER_VECTORISED
int64_t sum_rows(const float* x, const RowSet& set, float* out) { return sum(x, set, out); }
int64_t sum_rows(const double* x, const RowSet& set, double* out) { return sum(x, set, out); }

XFORMER_VECTORISED
void spread_row(const float* row, float factor, const RowSet& set, float* out) { spread(row, factor, set, out); }
void spread_row(const double* row, double factor, const RowSet& set, double* out) { spread(row, factor, set, out); }

XFORMER_VECTORISED
void add_to_rows(const float* row, float factor, const RowSet& set, float* out) { add(row, factor, set, out); }
void add_to_rows(const double* row, double factor, const RowSet& set, double* out) { add(row, factor, set, out); }

}  // namespace xformer::kernels
