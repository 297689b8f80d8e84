// The feed-forward part of a Transformer layer in one operator (Vaswani et al. 2017, section 3.3):
//   out = W2 drop(gelu(W1 x + b1)) + b2
// in blocks of rows that stay in the cache. Kept for the backward pass is z = W1 x + b1; the activation is made again.
#pragma once

#include "kernels/dropout/place.h"
#include "kernels/linear/linear.h"

namespace xformer::kernels {

// x [.., m], in [f, m], out [k, f], both with a bias -> [.., k], contiguous. `tanh`: the form of gelu_dropout.h.
// `needed` as of linear(). Element e of the activation [.., f] is dropped as kernels::dropout would drop it. For larger
// maps the three operators that it is made of run.
[[nodiscard]] at::Tensor feed_forward(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                                      const DropoutPlace& drop, const at::Tensor& needed = {});
// The definition.
[[nodiscard]] at::Tensor feed_forward_reference(const at::Tensor& x, const LinearMap& in, const LinearMap& out,
                                                bool tanh, const DropoutPlace& drop, const at::Tensor& needed = {});

}  // namespace xformer::kernels
