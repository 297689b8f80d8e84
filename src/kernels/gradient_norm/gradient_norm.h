// The norm of all gradients and what an update makes of it (training/optimizer.h), all on the gradients' device:
//   norm = |g| / scale,  skip = the norm is not finite,  factor = min(1, clip / (norm + 1e-6)) / scale,  step += 1 -
//   skip
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// Scalars ([]) on the gradients' device, which are written, float64 but for the last; the step is counted on.
struct GradientControls {
  at::Tensor norm, factor, skip, step;
  at::Tensor ready;  // int32 [], 0: a device counts in it
};

// gradients: one flat buffer. loss_scale: float32 [], by which the gradients are too large; undefined: 1. clip 0: no
// clipping.
void gradient_norm(const at::Tensor& gradients, const at::Tensor& loss_scale, double clip,
                   const GradientControls& controls);

// The same from plain tensor operations: the meaning, and what a device without a kernel of ours runs.
void gradient_norm_reference(const at::Tensor& gradients, const at::Tensor& loss_scale, double clip,
                             const GradientControls& controls);

}  // namespace xformer::kernels
