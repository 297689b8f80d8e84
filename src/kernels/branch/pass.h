// The signatures that a device's kernels of branch.h have.
#pragma once

#include "kernels/branch/branch.h"
#include "kernels/residual_norm/cpu.h"

namespace xformer::kernels {

struct BranchForward {
  // Without norm weights the sum alone; mean and rstd may be those of the norm that the branch begins with.
  ResidualNormForward norm;
  at::Tensor z;  // of a feed-forward part: in x + bias [.., f]
};
using BranchForwardPass = BranchForward(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop,
                                        const NormWeights& norm);

struct BranchGradients {
  at::Tensor x, rows;
  LinearMap out, in;
  at::Tensor weight, bias;          // of the norm behind
  at::Tensor own_weight, own_bias;  // of the norm of x that the branch begins with; then it has no rows
};
// normed_gradient may be undefined, and with it what is the norm's; else sum_gradient may.
using BranchBackwardPass = BranchGradients(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                           const BranchForward& made, const Branch& branch, const DropoutPlace& drop,
                                           const at::Tensor& weight);

}  // namespace xformer::kernels
