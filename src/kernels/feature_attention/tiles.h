// The loops over a tile of features that are not products. A tile is [rows, f] without gaps; `valid` has a flag for
// each row, or is nullptr: all count. Only kSoftmax reads `shift`, one a row: |x'|^2 / 2 + c.
#pragma once

#include <vector>

#include "kernels/feature_attention/feature_attention.h"

namespace xformer::kernels {

// The largest number of each row and, where `winners` is given, the first feature that reaches it; -1 where it is NaN.
void largest_of_rows(const float* tile, int64_t rows, int64_t f, float* largest, int64_t* winners = nullptr);
void largest_of_rows(const double* tile, int64_t rows, int64_t f, double* largest, int64_t* winners = nullptr);
// y -> features (kRelu, kSoftmax: plus `floor`), zeros where not valid; `sums` [f] gains those of every row.
void features_of_keys(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, const bool* valid,
                      float floor, float* sums);
void features_of_keys(FeatureMap map, double* tile, int64_t rows, int64_t f, const double* shift, const bool* valid,
                      double floor, double* sums);

// y -> features; dots[row] is their product with `sums` [f].
void features_of_queries(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, float floor,
                         const float* sums, float* dots);
void features_of_queries(FeatureMap map, double* tile, int64_t rows, int64_t f, const double* shift, double floor,
                         const double* sums, double* dots);

// y -> features, and `gradient`, that of the features but for factor[row] sums[f] (factor nullptr: sums[f]) -> that of
// y, c apart; row_sums[row] is its sum. Both are zero where not valid. d_sums [f], where given, gains factor[row] times
// the features.
void gradients_of_features(FeatureMap map, float* tile, float* gradient, int64_t rows, int64_t f, const float* shift,
                           const bool* valid, float floor, const float* sums, const float* factor, float* d_sums,
                           float* row_sums);
void gradients_of_features(FeatureMap map, double* tile, double* gradient, int64_t rows, int64_t f, const double* shift,
                           const bool* valid, double floor, const double* sums, const double* factor, double* d_sums,
                           double* row_sums);

// Those of float by each instruction set that there are two of them for, the widest first, which are the ones above.
using LargestOfRows = void(const float* tile, int64_t rows, int64_t f, float* largest, int64_t* winners);
using FeaturesOfKeys = void(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, const bool* valid,
                            float floor, float* sums);
using FeaturesOfQueries = void(FeatureMap map, float* tile, int64_t rows, int64_t f, const float* shift, float floor,
                               const float* sums, float* dots);
using GradientsOfFeatures = void(FeatureMap map, float* tile, float* gradient, int64_t rows, int64_t f,
                                 const float* shift, const bool* valid, float floor, const float* sums,
                                 const float* factor, float* d_sums, float* row_sums);
struct FeatureLoops {
  LargestOfRows* largest;
  FeaturesOfKeys* keys;
  FeaturesOfQueries* queries;
  GradientsOfFeatures* gradients;
};
[[nodiscard]] std::vector<FeatureLoops> ways_to_make_features();
namespace by_512 {
LargestOfRows largest_of_rows;
FeaturesOfKeys features_of_keys;
FeaturesOfQueries features_of_queries;
GradientsOfFeatures gradients_of_features;
}  // namespace by_512

// Rows of a tensor [.., stride] with `width` numbers each.

// out[row] = factor |x|^2
void squares_of_rows(const float* x, int64_t stride, int64_t rows, int64_t width, float factor, float* out);
void squares_of_rows(const double* x, int64_t stride, int64_t rows, int64_t width, double factor, double* out);

// y[row] += factor[row] scale x[row]; rows whose factor is zero stay as they are, whatever x holds.
void add_rows(float* y, int64_t y_stride, const float* x, int64_t x_stride, int64_t rows, int64_t width,
              const float* factor, float scale);
void add_rows(double* y, int64_t y_stride, const double* x, int64_t x_stride, int64_t rows, int64_t width,
              const double* factor, double scale);

// Gradients of out = numerator / divisor from `gradient`, that of out: the numerator's into `numerator` [rows, width],
// the divisor's into `sum`; zeros where not valid.
void gradients_of_quotient(const float* gradient, int64_t gradient_stride, const float* out, int64_t out_stride,
                           int64_t rows, int64_t width, const float* divisor, const bool* valid, float* numerator,
                           float* sum);
void gradients_of_quotient(const double* gradient, int64_t gradient_stride, const double* out, int64_t out_stride,
                           int64_t rows, int64_t width, const double* divisor, const bool* valid, double* numerator,
                           double* sum);

}  // namespace xformer::kernels
