// The loops of the causal form that are not products (causal.h). A chunk's weights are [rows, keys] without gaps: row r
// and key r are the same place, so row r has the keys up to r; what stands behind them becomes zero. `valid` has a flag
// for each key, or is nullptr: all count. `c` [rows], or nullptr: term j of row r is times exp(c[j] - c[r]), where c
// never falls.
#pragma once

#include "kernels/feature_attention/feature_attention.h"

namespace xformer::kernels {

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

// `gradient`, that of features that were made with `floor`, -> that of y, c apart (a tile of tiles.h); row_sums[row] is
// its sum. Zero where not valid.
void slopes_of_features(FeatureMap map, const float* features, float* gradient, int64_t rows, int64_t f,
                        const bool* valid, float floor, float* row_sums);
void slopes_of_features(FeatureMap map, const double* features, double* gradient, int64_t rows, int64_t f,
                        const bool* valid, double floor, double* row_sums);

// out[row] = the row times `with` [f], or its sum where that is nullptr.
void dots_of_rows(const float* tile, int64_t rows, int64_t f, const float* with, float* out);
void dots_of_rows(const double* tile, int64_t rows, int64_t f, const double* with, double* out);

// tile[row] = factor[row] (tile[row] + plus[row] with); plus nullptr: nothing is added.
void scale_rows(float* tile, int64_t stride, int64_t rows, int64_t width, const float* factor, const float* plus,
                const float* with);
void scale_rows(double* tile, int64_t stride, int64_t rows, int64_t width, const double* factor, const double* plus,
                const double* with);

}  // namespace xformer::kernels
