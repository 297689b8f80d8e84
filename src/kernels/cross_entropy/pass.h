// The signature that a device's kernel of cross_entropy.h has: one launch makes the loss, the count and the gradient.
#pragma once

#include "kernels/cross_entropy/cross_entropy.h"

namespace xformer::kernels {

struct CrossEntropyForward {
  at::Tensor loss, right, gradient;  // [] float; [] float64; [b,c], of the loss by the scores
};
using CrossEntropyPass = CrossEntropyForward(const ClassRows& rows, double smoothing);

}  // namespace xformer::kernels
