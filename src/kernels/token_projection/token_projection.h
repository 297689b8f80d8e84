// Mixtures of tokens, as Linformer's E K and F V: short[b,h,r] = sum_i P[h,r,i] x[b,h,i] over valid tokens i. On the
// CPU the tokens are read where they lie, P is not copied for each sample, and padding behind the last valid token is
// skipped.
#pragma once

#include <torch/types.h>

#include "tensor/sequence_mask.h"

namespace xformer::kernels {

struct TokenMixtures {
  at::Tensor x, y;  // [b,h,r,d]; the second is undefined without y
};

// projection [h or 1, r, N], x and y [b,h,n,d] with n <= N; y may be undefined.
[[nodiscard]] TokenMixtures project_tokens(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                           const SequenceMask& mask);
[[nodiscard]] TokenMixtures project_tokens_reference(const at::Tensor& projection, const at::Tensor& x,
                                                     const at::Tensor& y, const SequenceMask& mask);

}  // namespace xformer::kernels
