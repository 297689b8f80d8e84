// The features of kernel attention from plain tensor operations: one row of numbers for each query and key.
#pragma once

#include "kernels/feature_attention/feature_attention.h"

namespace xformer::kernels {

// phi(x) of kElu and kRelu: x [b,h,n,d] -> [b,h,n,f].
[[nodiscard]] at::Tensor plain_features(const at::Tensor& x, const FeatureAttentionOptions& options);

// What the features of kSoftmax are made of: phi(x) = exp(scores - half_square - c) + floor.
struct Projected {
  at::Tensor scores;       // omega x' [b,h,n,f]
  at::Tensor half_square;  // |x'|^2 / 2 [b,h,n,1]
  at::Tensor largest;      // largest score of the row [b,h,n,1]
};

// x' [b,h,n,d], omega [f,d].
[[nodiscard]] Projected project(const at::Tensor& x, const at::Tensor& omega);

}  // namespace xformer::kernels
