// Nystromformer's F2, the weights of landmarks for each other (Xiong et al., 2021, equation 11):
//   softmax(scale q k^T) over those that are landmarks
// in float, or double, whatever type queries and keys have: it is inverted (pseudo_inverse.h).
#pragma once

#include <torch/types.h>

#include "tensor/sequence_mask.h"

namespace xformer::kernels {

// q, k [b,h,m,d] -> [b,h,m,m]. The mask says which are landmarks; columns of others are zero, their rows mean nothing.
[[nodiscard]] at::Tensor landmark_weights(const at::Tensor& q, const at::Tensor& k, double scale,
                                          const SequenceMask& mask);

}  // namespace xformer::kernels
