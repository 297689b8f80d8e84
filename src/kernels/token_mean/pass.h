// The passes of token_mean.h: signatures alone.
#pragma once

#include "kernels/token_mean/token_mean.h"

namespace xformer::kernels {

struct TokenMeans {
  at::Tensor mean;   // [b,d]
  at::Tensor share;  // [b]: of a counted token
};

using TokenMeanForwardPass = TokenMeans(const at::Tensor& x, const TokenMeanOptions& options);
// [b,n,d] from the gradient of the mean.
using TokenMeanBackwardPass = at::Tensor(const at::Tensor& gradient, const at::Tensor& share, int64_t n,
                                         const TokenMeanOptions& options);

}  // namespace xformer::kernels
