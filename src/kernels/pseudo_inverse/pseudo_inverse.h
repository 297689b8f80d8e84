// The iterative pseudo-inverse of Nystromformer (Xiong et al. 2021, equation 13, after Razavi et al. 2014), for a small
// matrix per head: Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4 from Z = A^T / |A|_1, |A|_1 the largest sum of a
// column. (The paper divides by |A|_inf too, which is 1 where the rows of A sum to 1.)
#pragma once

#include <torch/types.h>

#include "tensor/sequence_mask.h"

namespace xformer::kernels {

// a [b,h,m,m], not negative, with a mask of its m landmarks -> [b,h,m,m]: the inverse of what is left without the rows
// and columns of landmarks that are not valid, which are zero. A matrix of zeros gives zeros.
[[nodiscard]] at::Tensor pseudo_inverse(const at::Tensor& a, const SequenceMask& mask, int64_t iterations);
[[nodiscard]] at::Tensor pseudo_inverse_reference(const at::Tensor& a, const SequenceMask& mask, int64_t iterations);

}  // namespace xformer::kernels
