// Linear maps of many rows by small weights, in blocks of rows that stay in the cache: the bias lies in the block
// before the product is added to it, and the backward pass takes a block's gradients of input, weight and bias while it
// is there. Several maps of one input (queries, keys and values) read it once.
#pragma once

#include <torch/types.h>

#include <vector>

#include "kernels/residual_norm/residual_norm.h"

namespace xformer::kernels {

struct LinearMap {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out] or undefined
};

// x [.., in] -> x weight^T + bias [.., out], contiguous. As at::linear; under autocast to bf16 the sums and the
// gradients of weights and biases are float's. On other devices than the CPU results are stored in autocast's type, and
// factors are rounded to it.
// `needed` [..] bool, or undefined: the rows that somebody reads. Kernels leave the others zero, and no gradient goes
// by them; where those do not run all rows are made.
[[nodiscard]] at::Tensor linear(const at::Tensor& x, const LinearMap& map, const at::Tensor& needed = {});
// One result for each map; all of them have a bias or none. One that is not used has no gradient, as if on its own.
[[nodiscard]] std::vector<at::Tensor> linear(const at::Tensor& x, const std::vector<LinearMap>& maps,
                                             const at::Tensor& needed = {});
// The same of a norm that may be yet to be made; then x.sum becomes what a caller is to go on with in its place, who
// gets both gradients added in the same pass.
[[nodiscard]] std::vector<at::Tensor> linear(NormedRows& x, const std::vector<LinearMap>& maps,
                                             const at::Tensor& needed = {});

struct MapGradients {
  at::Tensor x, weight, bias;  // the last undefined where the map has none
};
// What linear() hands back from the gradient of its result [.., out], for callers that autograd does not see. On other
// devices than the CPU no factor is rounded.
[[nodiscard]] MapGradients linear_gradients(const at::Tensor& gradient, const at::Tensor& x, const LinearMap& map);

}  // namespace xformer::kernels
