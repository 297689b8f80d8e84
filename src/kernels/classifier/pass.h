// The signatures that a device's kernels of classifier.h have. All maps have a bias.
#pragma once

#include "kernels/linear/cpu.h"

namespace xformer::kernels {

struct ClassifierForward {
  at::Tensor scores;               // [.., out]
  std::vector<at::Tensor> hidden;  // [rows, out] of every map but the last, behind ReLU
};
using ClassifierForwardPass = ClassifierForward(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                const std::vector<at::Tensor>& biases);
// From the gradient of the scores.
using ClassifierBackwardPass = LinearGradients(const at::Tensor& gradient, const at::Tensor& x,
                                               const std::vector<at::Tensor>& weights,
                                               const std::vector<at::Tensor>& biases,
                                               const std::vector<at::Tensor>& hidden, bool x_wanted);

}  // namespace xformer::kernels
