// A residual connection and the layer norm behind it (Ba, Kiros, Hinton, "Layer normalization", 2016), in one pass:
//   sum = x + drop(branch),   normed = (sum - mean) / sqrt(variance + epsilon) * weight + bias
// over the last dimension. Kept for the backward pass are the sum, which lives anyway, and two numbers a row.
#pragma once

#include "kernels/dropout/place.h"

namespace xformer::kernels {

struct NormWeights {
  at::Tensor weight, bias;  // [m]
  double epsilon = 1e-5;
};

struct ResidualNorm {
  at::Tensor sum, normed;
};

// A sum, and rows that are made of it: its norm, or the sum itself, with a norm yet to be made or without any.
struct NormedRows {
  at::Tensor sum, rows;
  NormWeights norm = {};
};

// x [.., m]; branch of the same shape, or undefined: then the sum is x. A caller that goes on with `sum` in x's place
// gets both gradients added in the same pass. `needed`: as of linear(), for both; a sum that is x itself stays it.
[[nodiscard]] ResidualNorm residual_norm(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                                         const NormWeights& norm, const at::Tensor& needed = {});
// The definition.
[[nodiscard]] ResidualNorm residual_norm_reference(const at::Tensor& x, const at::Tensor& branch,
                                                   const DropoutPlace& drop, const NormWeights& norm,
                                                   const at::Tensor& needed = {});

// x + drop(branch) alone.
[[nodiscard]] at::Tensor residual(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop);

}  // namespace xformer::kernels
