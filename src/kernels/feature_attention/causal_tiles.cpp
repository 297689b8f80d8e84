#include "kernels/feature_attention/causal_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/pack.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// A row of a tile.
template <class Value>
using Columns = typename Vector<Value, kCausalRows>::Lanes;

template <class Value>
[[gnu::always_inline]] inline void column_largest(const Value* tile, int64_t f, Value* largest, Value* winners) {
  Columns<Value> most, winner = {}, x;
  load(tile, most);
  for (int64_t i = 1; i < f; ++i) {
    load(tile + i * kCausalRows, x);
    winner = x > most ? Columns<Value>{} + static_cast<Value>(i) : winner;
    most = x > most ? x : most;
  }
  store(most, largest);
  store(winner, winners);
}

template <class Value>
[[gnu::always_inline]] inline void column_features(FeatureMap map, Value* tile, int64_t f, const Value* shift,
                                                   const Value* keep, Value floor, Value* totals) {
  Columns<Value> total = {}, x;
  for (int64_t i = 0; i < f; ++i) {
    Value* const row = tile + i * kCausalRows;
    if (map == FeatureMap::kSoftmax) {
      for (int64_t r = 0; r < kCausalRows; ++r) row[r] = exp_below(row[r] - shift[r]) + floor;
    } else if (map == FeatureMap::kElu) {
      for (int64_t r = 0; r < kCausalRows; ++r) row[r] = (row[r] > 0 ? row[r] + 1 : exp_of(row[r])) + floor;
    } else {
      for (int64_t r = 0; r < kCausalRows; ++r) row[r] = (row[r] < 0 ? Value(0) : row[r]) + floor;
    }
    if (keep != nullptr)
      for (int64_t r = 0; r < kCausalRows; ++r) row[r] = keep[r] != 0 ? row[r] : Value(0);
    if (totals == nullptr) continue;
    load(row, x);
    total += x;
  }
  if (totals != nullptr) store(total, totals);
}

template <class Value>
[[gnu::always_inline]] inline void column_dots(const Value* tile, int64_t f, const Value* with, Value* out) {
  Columns<Value> total = {}, x;
  for (int64_t i = 0; i < f; ++i) {
    load(tile + i * kCausalRows, x);
    total += x * with[i];
  }
  store(total, out);
}

// sum = [a0 + a1, b0 + b1, a2 + a3, b2 + b3, ..], where a0 stands for `step` lanes.
template <int64_t step, class Value, size_t... lane>
[[gnu::always_inline]] inline void add_in_turns(const Columns<Value>& a, const Columns<Value>& b, Columns<Value>& sum,
                                                std::index_sequence<lane...>) {
  sum = __builtin_shufflevector(a, b, lane / (2 * step) * 2 * step + lane % step + lane / step % 2 * kCausalRows...) +
        __builtin_shufflevector(a, b,
                                lane / (2 * step) * 2 * step + step + lane % step + lane / step % 2 * kCausalRows...);
}

// Sums over the columns times their factors: lane i gets a part of that of row i % count, lanes of a row in turns.
template <int64_t count, class Value>
[[gnu::always_inline]] inline void sums_of_rows(const Value* tile, const Columns<Value>& factors,
                                                Columns<Value>& sums) {
  if constexpr (count == 1) {
    load(tile, sums);
    sums *= factors;
  } else {
    Columns<Value> low, high;
    sums_of_rows<count / 2, Value>(tile, factors, low);
    sums_of_rows<count / 2, Value>(tile + count / 2 * kCausalRows, factors, high);
    add_in_turns<count / 2, Value>(low, high, sums, std::make_index_sequence<kCausalRows>());
  }
}

template <class Value>
[[gnu::always_inline]] inline void column_sums(const Value* tile, int64_t f, const Value* factor, Value* sums) {
  Columns<Value> factors, before, x;
  load(factor, factors);
  int64_t i = 0;
  for (; i + kCausalRows <= f; i += kCausalRows) {
    sums_of_rows<kCausalRows, Value>(tile + i * kCausalRows, factors, x);
    load(sums + i, before);
    x += before;
    store(x, sums + i);
  }
  for (; i < f; ++i) {
    load(tile + i * kCausalRows, x);
    x *= factors;
    sums[i] += sum_of<kCausalRows, Value>(x);
  }
}

template <class Value>
[[gnu::always_inline]] inline void columns_times(const Value* tile, int64_t f, const Value* factor, Value* into) {
  Columns<Value> factors, x;
  load(factor, factors);
  for (int64_t i = 0; i < f; ++i) {
    load(tile + i * kCausalRows, x);
    x *= factors;
    store(x, into + i * kCausalRows);
  }
}

template <class Value>
[[gnu::always_inline]] inline void column_slopes(FeatureMap map, const Value* features, Value* gradient, int64_t f,
                                                 const ColumnTerms<Value>& terms, Value floor, Value* dots,
                                                 Value* totals) {
  Columns<Value> dot = {}, total = {}, times, more = {}, feature, slope;
  load(terms.times, times);
  if (terms.more != nullptr) load(terms.more, more);
  // The derivative of exp is what it gave; elu + 1 passes 1 where its slope is 1.
  const Value most = map == FeatureMap::kElu ? Value(1) : std::numeric_limits<Value>::infinity();
  for (int64_t i = 0; i < f; ++i) {
    load(features + i * kCausalRows, feature);
    load(gradient + i * kCausalRows, slope);
    slope += times * terms.sums[i];
    dot += feature * slope;
    slope += more;
    feature -= floor;
    if (map == FeatureMap::kRelu) slope = feature > 0 ? slope : Columns<Value>{};
    else slope *= feature > most ? Columns<Value>{} + most : feature;
    total += slope;
    store(slope, gradient + i * kCausalRows);
  }
  if (terms.keep != nullptr)
    for (int64_t i = 0; i < f; ++i)
      for (int64_t r = 0; r < kCausalRows; ++r)
        gradient[i * kCausalRows + r] = terms.keep[r] != 0 ? gradient[i * kCausalRows + r] : Value(0);
  store(dot, dots);
  store(total, totals);
  for (int64_t r = 0; terms.keep != nullptr && r < kCausalRows; ++r)
    if (terms.keep[r] == 0) dots[r] = totals[r] = 0;
}

// Most rows have the c of the chunk's first: there is nothing to do for them then.
template <class Value>
[[gnu::always_inline]] inline void bring_to_row(Value* row, int64_t count, const Value* c, int64_t r) {
  if (c == nullptr || c[0] == c[r]) return;
  for (int64_t j = 0; j < count; ++j) row[j] *= std::exp(c[j] - c[r]);
}

template <class Value>
[[gnu::always_inline]] inline void chunk_weights(Value* weights, int64_t rows, int64_t keys, const bool* valid,
                                                 const Value* c, const Value* more, Value* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    Value* const row = weights + r * keys;
    const int64_t count = std::min(r + 1, keys);
    bring_to_row(row, count, c, r);
    if (more != nullptr)
      for (int64_t j = 0; j < count; ++j) row[j] += valid == nullptr || valid[j] ? more[r] : Value(0);
    sums[r] = total_of(row, count);
    std::fill(row + count, row + keys, Value(0));
  }
}

template <class Value>
[[gnu::always_inline]] inline void chunk_slopes(Value* slopes, int64_t rows, int64_t keys, const bool* valid,
                                                const Value* c, const Value* d_sum, Value* sums) {
  for (int64_t r = 0; r < rows; ++r) {
    Value* const row = slopes + r * keys;
    const int64_t count = std::min(r + 1, keys);
    for (int64_t j = 0; j < count; ++j) row[j] = valid == nullptr || valid[j] ? row[j] + d_sum[r] : Value(0);
    sums[r] = total_of(row, count);
    bring_to_row(row, count, c, r);
    std::fill(row + count, row + keys, Value(0));
  }
}

}  // namespace

void turn_over(int64_t rows, int64_t columns, const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  pack_transposed(columns, rows, 1, from, from_stride, to, to_stride);
}
void turn_over(int64_t rows, int64_t columns, const double* from, int64_t from_stride, double* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) to[i * to_stride + r] = from[r * from_stride + i];
}

XFORMER_VECTORISED
void largest_of_columns(const float* tile, int64_t f, float* largest, float* winners) {
  column_largest(tile, f, largest, winners);
}
void largest_of_columns(const double* tile, int64_t f, double* largest, double* winners) {
  column_largest(tile, f, largest, winners);
}

XFORMER_VECTORISED
void features_of_columns(FeatureMap map, float* tile, int64_t f, const float* shift, const float* keep, float floor,
                         float* totals) {
  column_features(map, tile, f, shift, keep, floor, totals);
}
void features_of_columns(FeatureMap map, double* tile, int64_t f, const double* shift, const double* keep, double floor,
                         double* totals) {
  column_features(map, tile, f, shift, keep, floor, totals);
}

XFORMER_VECTORISED
void dots_of_columns(const float* tile, int64_t f, const float* with, float* out) { column_dots(tile, f, with, out); }
void dots_of_columns(const double* tile, int64_t f, const double* with, double* out) {
  column_dots(tile, f, with, out);
}

XFORMER_VECTORISED
void add_columns(const float* tile, int64_t f, const float* factor, float* sums) { column_sums(tile, f, factor, sums); }
void add_columns(const double* tile, int64_t f, const double* factor, double* sums) {
  column_sums(tile, f, factor, sums);
}

XFORMER_VECTORISED
void scale_columns(const float* tile, int64_t f, const float* factor, float* into) {
  columns_times(tile, f, factor, into);
}
void scale_columns(const double* tile, int64_t f, const double* factor, double* into) {
  columns_times(tile, f, factor, into);
}

XFORMER_VECTORISED
void slopes_of_columns(FeatureMap map, const float* features, float* gradient, int64_t f,
                       const ColumnTerms<float>& terms, float floor, float* dots, float* totals) {
  column_slopes(map, features, gradient, f, terms, floor, dots, totals);
}
void slopes_of_columns(FeatureMap map, const double* features, double* gradient, int64_t f,
                       const ColumnTerms<double>& terms, double floor, double* dots, double* totals) {
  column_slopes(map, features, gradient, f, terms, floor, dots, totals);
}

XFORMER_VECTORISED
void dots_of_rows(const float* from, int64_t rows, int64_t width, const float* with, float* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = dot_of(from + r * width, with, width);
}
void dots_of_rows(const double* from, int64_t rows, int64_t width, const double* with, double* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = dot_of(from + r * width, with, width);
}

XFORMER_VECTORISED
void weights_of_chunk(float* weights, int64_t rows, int64_t keys, const bool* valid, const float* c, const float* more,
                      float* sums) {
  chunk_weights(weights, rows, keys, valid, c, more, sums);
}
void weights_of_chunk(double* weights, int64_t rows, int64_t keys, const bool* valid, const double* c,
                      const double* more, double* sums) {
  chunk_weights(weights, rows, keys, valid, c, more, sums);
}

XFORMER_VECTORISED
void slopes_of_chunk(float* slopes, int64_t rows, int64_t keys, const bool* valid, const float* c, const float* d_sum,
                     float* sums) {
  chunk_slopes(slopes, rows, keys, valid, c, d_sum, sums);
}
void slopes_of_chunk(double* slopes, int64_t rows, int64_t keys, const bool* valid, const double* c,
                     const double* d_sum, double* sums) {
  chunk_slopes(slopes, rows, keys, valid, c, d_sum, sums);
}

}  // namespace xformer::kernels
