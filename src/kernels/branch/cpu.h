// The CPU's two passes of branch.h, for float and double, and for bf16 with maps and norm weights in float.
#pragma once

#include "kernels/branch/pass.h"

namespace xformer::kernels {

[[nodiscard]] BranchForward branch_forward_cpu(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop,
                                               const NormWeights& norm);
[[nodiscard]] BranchGradients branch_backward_cpu(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                                  const BranchForward& made, const Branch& branch,
                                                  const DropoutPlace& drop, const at::Tensor& weight);

}  // namespace xformer::kernels
