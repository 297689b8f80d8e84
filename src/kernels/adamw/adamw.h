// One update of AdamW (Loshchilov and Hutter 2019) in one pass over flat buffers, every number that changes from step
// to step being a tensor, so that a captured step sees it change:
//
//   g' = factor g;   m = b1 m + (1 - b1) g';   v = b2 v + (1 - b2) g'^2
//   x = (1 - lr wd) x - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
//
// Rectified (Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020, as their code has it), with
// p = 2 / (1 - b2) - 1 and q = p - 2 t b2^t / (1 - b2^t):
//
//   q >= 5:  x = (1 - lr wd) x - lr r m / (1 - b1^t) / (sqrt(v) + eps),
//            r = sqrt((1 - b2^t) (q - 4) / (p - 4) (q - 2) / q p / (p - 2))
//   else:    x = (1 - lr wd) x - lr m / (1 - b1^t)
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// Float64 scalars ([]) on the buffers' device.
struct AdamWControls {
  at::Tensor learning_rate, beta1;
  at::Tensor factor;  // of the gradient: clipping, inverse loss scale
  at::Tensor step;    // t, counted from 1, this update included
  at::Tensor skip;    // not 0: leave everything as it is, whatever the gradient holds
};

struct AdamWConstants {
  double beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool rectified = false;
  int64_t decayed = INT64_MAX;  // elements in front to which weight decay applies; the others do not decay
};

// x, gradient, m, v: contiguous, of one shape and floating type; x, m and v are changed in place.
void adamw(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
           const AdamWControls& controls, const AdamWConstants& constants);

// The same from plain tensor operations: the meaning that the kernels are tested against, and what a device without one
// runs.
void adamw_reference(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
                     const AdamWControls& controls, const AdamWConstants& constants);

}  // namespace xformer::kernels
