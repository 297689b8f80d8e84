#include <algorithm>

#include "kernels/cpu/row_sums.h"
#include "kernels/rolled_rows/cpu.h"

namespace xformer::kernels {

namespace {

[[gnu::always_inline]] inline bool counts(const RolledLinks& of, int64_t row) {
  return of.valid == nullptr || of.valid[row];
}

// Where the links of row i lead.
[[gnu::always_inline]] inline void follow(const RolledLinks& of, int64_t i) {
  for (int64_t p = 0; p < of.links; ++p) {
    const int64_t j = i + of.steps[p];
    of.there[p] = j < of.n ? j : j - of.n;
  }
}

// Sums of `lanes` columns at a time, kVectors times side by side in registers while the links go by.
template <int64_t lanes, int64_t kVectors, bool spread, int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void sum_links(const RolledLinks& of, const Stored* from, const Stored* w, int64_t i,
                                             int64_t column, Value* out) {
  Registers<Value, lanes, kRegister> sums[kVectors] = {}, row;
  if (of.residual && counts(of, i))
    for (int64_t k = 0; k < kVectors; ++k) fetch(from + i * of.columns + column + k * lanes, sums[k]);
  for (int64_t p = 0; p < of.links; ++p) {
    const int64_t j = of.there[p];
    if (spread && !counts(of, j)) continue;
    const Value weight = widened(w[(spread ? j : i) * of.links + p]);
    for (int64_t k = 0; k < kVectors; ++k) {
      fetch(from + j * of.columns + column + k * lanes, row);
      sums[k] += row * weight;
    }
  }
  for (int64_t k = 0; k < kVectors; ++k) sums[k].store_to(out + column + k * lanes);
}

template <bool spread, int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void sum_rows(const RolledLinks& of, const Stored* from, const Stored* w, int64_t first,
                                            int64_t last, Value* out) {
  constexpr int64_t kNarrow = 8;
  for (int64_t i = first; i < last; ++i, out += of.columns) {
    if (!spread && !counts(of, i)) {
      std::fill_n(out, of.columns, Value(0));
      continue;
    }
    follow(of, i);
    int64_t c = 0;
    for (; c + 4 * kSumLanes <= of.columns; c += 4 * kSumLanes)
      sum_links<kSumLanes, 4, spread, kRegister>(of, from, w, i, c, out);
    for (; c + kSumLanes <= of.columns; c += kSumLanes)
      sum_links<kSumLanes, 1, spread, kRegister>(of, from, w, i, c, out);
    for (; c + kNarrow <= of.columns; c += kNarrow) sum_links<kNarrow, 1, spread, kRegister>(of, from, w, i, c, out);
    for (; c < of.columns; ++c) sum_links<1, 1, spread, kRegister>(of, from, w, i, c, out);
  }
}

template <int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void multiply_rows(const RolledLinks& of, const Stored* slope, const Stored* v,
                                                 int64_t first, int64_t last, Value* out) {
  for (int64_t i = first; i < last; ++i, out += of.links) {
    if (!counts(of, i)) {
      std::fill_n(out, of.links, Value(0));
      continue;
    }
    follow(of, i);
    for (int64_t p = 0; p < of.links; p += kSumLanes) {
      const int64_t count = std::min(kSumLanes, of.links - p);
      const Stored* rows[kSumLanes];  // those behind the last link are read as it is, and not used
      for (int64_t l = 0; l < kSumLanes; ++l) rows[l] = v + of.there[p + std::min(l, count - 1)] * of.columns;
      Value dots[kSumLanes];
      dots_of<kRegister>(slope + i * of.columns, rows, of.columns, dots);
      for (int64_t l = 0; l < count; ++l) out[p + l] = dots[l];
    }
  }
}

}  // namespace

XFORMER_VECTORISED_BY_REGISTER(void, mix_rolled,
                               (const RolledLinks& of, const float* v, const float* w, int64_t first, int64_t last,
                                float* out),
                               (of, v, w, first, last, out), sum_rows<false, kRegister>(of, v, w, first, last, out))
void mix_rolled(const RolledLinks& of, const double* v, const double* w, int64_t first, int64_t last, double* out) {
  sum_rows<false, kPlainRegister>(of, v, w, first, last, out);
}
XFORMER_VECTORISED_BY_REGISTER(void, mix_rolled,
                               (const RolledLinks& of, const c10::BFloat16* v, const c10::BFloat16* w, int64_t first,
                                int64_t last, float* out),
                               (of, v, w, first, last, out), sum_rows<false, kRegister>(of, v, w, first, last, out))

XFORMER_VECTORISED_BY_REGISTER(void, spread_rolled,
                               (const RolledLinks& of, const float* slope, const float* w, int64_t first, int64_t last,
                                float* out),
                               (of, slope, w, first, last, out),
                               sum_rows<true, kRegister>(of, slope, w, first, last, out))
void spread_rolled(const RolledLinks& of, const double* slope, const double* w, int64_t first, int64_t last,
                   double* out) {
  sum_rows<true, kPlainRegister>(of, slope, w, first, last, out);
}
XFORMER_VECTORISED_BY_REGISTER(void, spread_rolled,
                               (const RolledLinks& of, const c10::BFloat16* slope, const c10::BFloat16* w,
                                int64_t first, int64_t last, float* out),
                               (of, slope, w, first, last, out),
                               sum_rows<true, kRegister>(of, slope, w, first, last, out))

XFORMER_VECTORISED_BY_REGISTER(void, weight_slopes,
                               (const RolledLinks& of, const float* slope, const float* v, int64_t first, int64_t last,
                                float* out),
                               (of, slope, v, first, last, out),
                               multiply_rows<kRegister>(of, slope, v, first, last, out))
void weight_slopes(const RolledLinks& of, const double* slope, const double* v, int64_t first, int64_t last,
                   double* out) {
  multiply_rows<kPlainRegister>(of, slope, v, first, last, out);
}
XFORMER_VECTORISED_BY_REGISTER(void, weight_slopes,
                               (const RolledLinks& of, const c10::BFloat16* slope, const c10::BFloat16* v,
                                int64_t first, int64_t last, float* out),
                               (of, slope, v, first, last, out),
                               multiply_rows<kRegister>(of, slope, v, first, last, out))

}  // namespace xformer::kernels
