#include <algorithm>

#include "kernels/cpu/vectorised.h"
#include "kernels/rolled_rows/cpu.h"

namespace xformer::kernels {

namespace {

[[gnu::always_inline]] inline bool counts(const RolledLinks& of, int64_t row) {
  return of.valid == nullptr || of.valid[row];
}

[[gnu::always_inline]] inline int64_t stepped(const RolledLinks& of, int64_t row, int64_t link) {
  const int64_t there = row + of.steps[link];
  return there < of.n ? there : there - of.n;
}

// `lanes` sums of a row stay in registers while its links go by.
template <int64_t lanes, bool spread, class Value>
[[gnu::always_inline]] inline void sum_links(const RolledLinks& of, const Value* from, const Value* w, int64_t i,
                                             int64_t column, Value* out) {
  typename Vector<Value, lanes>::Lanes sum = {}, row;
  if (of.residual && counts(of, i)) load(from + i * of.columns + column, sum);
  for (int64_t p = 0; p < of.links; ++p) {
    const int64_t j = stepped(of, i, p);
    if (spread && !counts(of, j)) continue;
    load(from + j * of.columns + column, row);
    sum += w[(spread ? j : i) * of.links + p] * row;
  }
  store(sum, out + i * of.columns + column);
}

template <bool spread, class Value>
[[gnu::always_inline]] inline void sum_rows(const RolledLinks& of, const Value* from, const Value* w, int64_t first,
                                            int64_t last, Value* out) {
  constexpr int64_t kWide = 32, kNarrow = 8;
  for (int64_t i = first; i < last; ++i) {
    if (!spread && !counts(of, i)) {
      std::fill_n(out + i * of.columns, of.columns, Value(0));
      continue;
    }
    int64_t c = 0;
    for (; c + kWide <= of.columns; c += kWide) sum_links<kWide, spread>(of, from, w, i, c, out);
    for (; c + kNarrow <= of.columns; c += kNarrow) sum_links<kNarrow, spread>(of, from, w, i, c, out);
    for (; c < of.columns; ++c) sum_links<1, spread>(of, from, w, i, c, out);
  }
}

template <class Value>
[[gnu::always_inline]] inline void multiply_rows(const RolledLinks& of, const Value* slope, const Value* v,
                                                 int64_t first, int64_t last, Value* out) {
  for (int64_t i = first; i < last; ++i)
    for (int64_t p = 0; p < of.links; ++p) {
      const Value *const left = slope + i * of.columns, *const right = v + stepped(of, i, p) * of.columns;
      SumLanes<Value> sums = {}, a, b;
      int64_t c = 0;
      for (; c + kSumLanes <= of.columns; c += kSumLanes) {
        load(left + c, a), load(right + c, b);
        sums += a * b;
      }
      Value sum = sum_of<kSumLanes, Value>(sums);
      for (; c < of.columns; ++c) sum += left[c] * right[c];
      out[i * of.links + p] = counts(of, i) ? sum : Value(0);
    }
}

}  // namespace

XFORMER_VECTORISED
void mix_rolled(const RolledLinks& of, const float* v, const float* w, int64_t first, int64_t last, float* out) {
  sum_rows<false>(of, v, w, first, last, out);
}
void mix_rolled(const RolledLinks& of, const double* v, const double* w, int64_t first, int64_t last, double* out) {
  sum_rows<false>(of, v, w, first, last, out);
}

XFORMER_VECTORISED
void spread_rolled(const RolledLinks& of, const float* slope, const float* w, int64_t first, int64_t last, float* out) {
  sum_rows<true>(of, slope, w, first, last, out);
}
void spread_rolled(const RolledLinks& of, const double* slope, const double* w, int64_t first, int64_t last,
                   double* out) {
  sum_rows<true>(of, slope, w, first, last, out);
}

XFORMER_VECTORISED
void weight_slopes(const RolledLinks& of, const float* slope, const float* v, int64_t first, int64_t last, float* out) {
  multiply_rows(of, slope, v, first, last, out);
}
void weight_slopes(const RolledLinks& of, const double* slope, const double* v, int64_t first, int64_t last,
                   double* out) {
  multiply_rows(of, slope, v, first, last, out);
}

}  // namespace xformer::kernels
