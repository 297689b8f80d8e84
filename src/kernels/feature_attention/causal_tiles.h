// The loops of the causal form that are not products (causal.h). A tile of features is [f, kCausalRows]: a row of the
// sequence is a column, so that sums over features are sums of vectors. All columns go through the loops, whatever
// those behind the last row hold. A chunk's weights are [rows, keys] without gaps: row r and key r are the same place,
// so row r has the keys up to r; what stands behind them becomes zero. `valid` has a flag for each key, or is nullptr:
// all count. `c` [rows], or nullptr: term j of row r is times exp(c[j] - c[r]), where c never falls.
#pragma once

#include "kernels/feature_attention/feature_attention.h"

namespace xformer::kernels {

// to [columns, rows] from `from` [rows, columns]; strides of rows.
void turn_over(int64_t rows, int64_t columns, const float* from, int64_t from_stride, float* to, int64_t to_stride);
void turn_over(int64_t rows, int64_t columns, const double* from, int64_t from_stride, double* to, int64_t to_stride);

// The largest number of each column, and the first row that has it.
void largest_of_columns(const float* tile, int64_t f, float* largest, float* winners);
void largest_of_columns(const double* tile, int64_t f, double* largest, double* winners);

// y -> features (kRelu, kSoftmax: plus `floor`), relative to shift[column], which only kSoftmax reads. Columns whose
// keep is zero become zero; nullptr: none does. totals[column], where given, is the column's sum.
void features_of_columns(FeatureMap map, float* tile, int64_t f, const float* shift, const float* keep, float floor,
                         float* totals);
void features_of_columns(FeatureMap map, double* tile, int64_t f, const double* shift, const double* keep, double floor,
                         double* totals);

// out[column] = the column times `with` [f].
void dots_of_columns(const float* tile, int64_t f, const float* with, float* out);
void dots_of_columns(const double* tile, int64_t f, const double* with, double* out);

// sums [f] += the columns times factor[column].
void add_columns(const float* tile, int64_t f, const float* factor, float* sums);
void add_columns(const double* tile, int64_t f, const double* factor, double* sums);

// into = the columns times factor[column]
void scale_columns(const float* tile, int64_t f, const float* factor, float* into);
void scale_columns(const double* tile, int64_t f, const double* factor, double* into);

// What slopes_of_columns() adds to the gradient of features.
template <class Value>
struct ColumnTerms {
  const Value *times, *sums;  // times[column] sums[f]
  const Value* more;          // more[column], behind `dots`; nullptr: 0
  const Value* keep;          // columns whose keep is zero have no gradient; nullptr: all have one
};

// `gradient`, that of features that were made with `floor`, but for the terms -> that of y, c apart. Of a column,
// dots[column] is the features times their gradient without `more`, totals[column] the sum of the result.
void slopes_of_columns(FeatureMap map, const float* features, float* gradient, int64_t f,
                       const ColumnTerms<float>& terms, float floor, float* dots, float* totals);
void slopes_of_columns(FeatureMap map, const double* features, double* gradient, int64_t f,
                       const ColumnTerms<double>& terms, double floor, double* dots, double* totals);

// out[row] = the row of [rows, width], without gaps, times `with` [width].
void dots_of_rows(const float* from, int64_t rows, int64_t width, const float* with, float* out);
void dots_of_rows(const double* from, int64_t rows, int64_t width, const double* with, double* out);

// Products of features -> weights: `more[row]`, where given, is added for every key; sums[row] is the row's sum.
void weights_of_chunk(float* weights, int64_t rows, int64_t keys, const bool* valid, const float* c, const float* more,
                      float* sums);
void weights_of_chunk(double* weights, int64_t rows, int64_t keys, const bool* valid, const double* c,
                      const double* more, double* sums);

// Gradients of outputs times values, plus d_sum[row] -> gradients of weights, whose sums are sums[row] -> those of the
// products that the weights were made from.
void slopes_of_chunk(float* slopes, int64_t rows, int64_t keys, const bool* valid, const float* c, const float* d_sum,
                     float* sums);
void slopes_of_chunk(double* slopes, int64_t rows, int64_t keys, const bool* valid, const double* c,
                     const double* d_sum, double* sums);

}  // namespace xformer::kernels
