// What a readout makes of one row for each example: linear maps with ReLU between them,
//   scores = W_k relu(.. relu(W_1 x + b_1) ..) + b_k
// On a device two or three small maps of few rows are one launch forwards and two backwards, all in float; the rest,
// and a CPU, goes map by map.
#pragma once

#include "kernels/linear/linear.h"

namespace xformer::kernels {

// x [.., in] -> [.., out of the last map], as linear() stores it; where it is one operator in float.
[[nodiscard]] at::Tensor classifier(const at::Tensor& x, const std::vector<LinearMap>& maps);

// The definition.
[[nodiscard]] at::Tensor classifier_reference(const at::Tensor& x, const std::vector<LinearMap>& maps);

}  // namespace xformer::kernels
