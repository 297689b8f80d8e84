// Rows of features in bf16 by AVX-512, where pairs_possible(): what tiles.h does, with numbers that are widened, made
// and rounded in registers, and left as products take them.
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/feature_attention/feature_attention.h"

namespace xformer::kernels::by_512 {

struct FeatureRows {
  FeatureMap map;
  int64_t rows, f;
  const float* y;  // [rows,f]; nullptr: y is x
  const c10::BFloat16* x;
  int64_t x_stride;
  const float* shift;  // [rows], for kSoftmax
  const bool* valid;   // [rows], features of others are 0; nullptr: all count
  float floor;
};

// Features as a second factor; `sums` [f] gains those of every row.
void key_features(const FeatureRows& rows, PairedFactor& features, float* sums);

// Features [rows,f] as a first factor; dots[row] is their product with `sums` [f].
void query_features(const FeatureRows& rows, const float* sums, c10::BFloat16* features, float* dots);

// The gradient of y but for what |x'|^2 / 2 and c take of it, [rows] `stride` apart; 0 where a row does not count.
struct FeatureSlopes {
  const float* slope;  // [rows,f] the gradient of features but for times[row] sums [f]
  const float* sums;
  const float* times;      // nullptr: 1
  const int64_t* winners;  // of each row the feature whose y is taken off all, or -1; nullptr: there is none
  float* row_sums;         // the sum of a row's, which its winner loses
  c10::BFloat16* gradient;
  int64_t stride;
};

// With the features as a second factor; d_sums [f] gains times[row] times these.
void query_gradients(const FeatureRows& rows, const FeatureSlopes& slopes, PairedFactor& features, float* d_sums);
// With the features [rows,f] as a first factor.
void key_gradients(const FeatureRows& rows, const FeatureSlopes& slopes, c10::BFloat16* features);

// As gradients_of_quotient(), with the numerator's [rows,width] rounded.
void quotient_gradients(const c10::BFloat16* gradient, int64_t gradient_stride, const c10::BFloat16* out,
                        int64_t out_stride, int64_t rows, int64_t width, const float* divisor, const bool* valid,
                        c10::BFloat16* numerator, float* sum);

}  // namespace xformer::kernels::by_512
