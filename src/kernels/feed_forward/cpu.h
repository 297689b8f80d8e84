// The CPU's two passes of feed_forward.h, for float and double, and for bf16 with maps in float.
#pragma once

#include "kernels/feed_forward/feed_forward.h"

namespace xformer::kernels {

struct FeedForwardForward {
  at::Tensor out, z;  // [.., k], [.., f]
};

[[nodiscard]] FeedForwardForward feed_forward_forward_cpu(const at::Tensor& x, const LinearMap& in,
                                                          const LinearMap& out, bool tanh, const DropoutPlace& drop,
                                                          const at::Tensor& needed);

struct FeedForwardGradients {
  at::Tensor x;  // undefined if not wanted
  LinearMap in, out;
};

[[nodiscard]] FeedForwardGradients feed_forward_backward_cpu(const at::Tensor& gradient, const at::Tensor& x,
                                                             const at::Tensor& z, const LinearMap& in,
                                                             const LinearMap& out, bool tanh, const DropoutPlace& drop,
                                                             const at::Tensor& needed, bool x_wanted);

}  // namespace xformer::kernels
