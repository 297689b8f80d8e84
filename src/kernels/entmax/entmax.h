// Rows of weights by alpha-entmax (Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models", ACL 2019, equations
// 9 to 11). With b = alpha - 1, p = entmax(s) is argmax over distributions of p s + sum (p - p^alpha) / (alpha b), that
// is
//   p_j = [1 + b (s_j - max s - t)]_+^(1 / b)   with the t for which they sum to 1
// The sum falls in t and is convex, so that Newton's steps from t = 0, where it is at least 1, rise to the root.
// Gradients are closed forms of p alone (attention-third 9): with u = p^(2 - alpha) on the support and u' = u / sum u,
// dL/ds = u (g - sum u' g), and
//   dp / dalpha = (p - u') / b^2 + (h - u' sum h) / b,   h = -p log p
// These are plain tensor operations that keep p alone, the definition of kernels/entmax_attention.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

struct EntmaxOptions {
  double alpha = 0;   // of all rows, 1.5 or 2: powers without a logarithm; 0: what the tensor says
  double no_key = 0;  // a row whose largest score is not above it has no key: p = 0
};

// scores [b,h,q,k], alpha [h] within 1 and 2, both excluded where the gradient of alpha is asked for -> p [b,h,q,k].
// With options.alpha the tensor alpha has one element, which has no gradient.
[[nodiscard]] at::Tensor entmax(const at::Tensor& scores, const at::Tensor& alpha, const EntmaxOptions& options);

}  // namespace xformer::kernels
