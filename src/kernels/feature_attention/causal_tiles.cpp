#include "kernels/feature_attention/causal_tiles.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/vectorised.h"
#include "kernels/feature_attention/row_sums.h"

namespace xformer::kernels {

namespace {

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

template <class Value>
[[gnu::always_inline]] inline void feature_slopes(FeatureMap map, const Value* features, Value* gradient, int64_t rows,
                                                  int64_t f, const bool* valid, Value floor, Value* row_sums) {
  for (int64_t r = 0; r < rows; ++r) {
    const Value* const row = features + r * f;
    Value* const slope = gradient + r * f;
    row_sums[r] = 0;
    if (valid != nullptr && !valid[r]) {
      std::fill_n(slope, f, Value(0));
    } else if (map == FeatureMap::kRelu) {
      for (int64_t i = 0; i < f; ++i) slope[i] = row[i] > floor ? slope[i] : Value(0);
    } else {
      // The derivative of exp is what it gave; elu + 1 passes 1 where its slope is 1.
      const Value most = map == FeatureMap::kElu ? Value(1) : INFINITY;
      for (int64_t i = 0; i < f; ++i) slope[i] *= std::min(row[i] - floor, most);
      if (map == FeatureMap::kSoftmax) row_sums[r] = total_of(slope, f);
    }
  }
}

template <class Value>
[[gnu::always_inline]] inline void row_dots(const Value* tile, int64_t rows, int64_t f, const Value* with, Value* out) {
  for (int64_t r = 0; r < rows; ++r)
    out[r] = with == nullptr ? total_of(tile + r * f, f) : dot_of(tile + r * f, with, f);
}

template <class Value>
[[gnu::always_inline]] inline void rows_times(Value* tile, int64_t stride, int64_t rows, int64_t width,
                                              const Value* factor, const Value* plus, const Value* with) {
  for (int64_t r = 0; r < rows; ++r) {
    Value* const row = tile + r * stride;
    if (plus != nullptr)
      for (int64_t i = 0; i < width; ++i) row[i] = factor[r] * (row[i] + plus[r] * with[i]);
    else if (factor[r] != 1)
      for (int64_t i = 0; i < width; ++i) row[i] *= factor[r];
  }
}

}  // namespace

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

XFORMER_VECTORISED
void slopes_of_features(FeatureMap map, const float* features, float* gradient, int64_t rows, int64_t f,
                        const bool* valid, float floor, float* row_sums) {
  feature_slopes(map, features, gradient, rows, f, valid, floor, row_sums);
}
void slopes_of_features(FeatureMap map, const double* features, double* gradient, int64_t rows, int64_t f,
                        const bool* valid, double floor, double* row_sums) {
  feature_slopes(map, features, gradient, rows, f, valid, floor, row_sums);
}

XFORMER_VECTORISED
void dots_of_rows(const float* tile, int64_t rows, int64_t f, const float* with, float* out) {
  row_dots(tile, rows, f, with, out);
}
void dots_of_rows(const double* tile, int64_t rows, int64_t f, const double* with, double* out) {
  row_dots(tile, rows, f, with, out);
}

XFORMER_VECTORISED
void scale_rows(float* tile, int64_t stride, int64_t rows, int64_t width, const float* factor, const float* plus,
                const float* with) {
  rows_times(tile, stride, rows, width, factor, plus, with);
}
void scale_rows(double* tile, int64_t stride, int64_t rows, int64_t width, const double* factor, const double* plus,
                const double* with) {
  rows_times(tile, stride, rows, width, factor, plus, with);
}

}  // namespace xformer::kernels
