// Activation and dropout of a feed-forward part in one pass: drop(gelu(x)), exact or in its tanh form (Hendrycks,
// Gimpel, "Gaussian error linear units", 2016). Kept for the backward pass is x alone.
#pragma once

#include "kernels/dropout/place.h"

namespace xformer::kernels {

// `tanh`: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) instead of x times the normal distribution's share below x.
[[nodiscard]] at::Tensor gelu_dropout(const at::Tensor& x, bool tanh, const DropoutPlace& drop);
// The definition.
[[nodiscard]] at::Tensor gelu_dropout_reference(const at::Tensor& x, bool tanh, const DropoutPlace& drop);

}  // namespace xformer::kernels
