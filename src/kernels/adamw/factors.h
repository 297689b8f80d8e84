// The numbers of one update of AdamW that all elements share (adamw.h), for the CPU and for devices.
#pragma once

#include <cmath>

#include "kernels/device/thread.h"

namespace xformer::kernels {

// In double until they meet the elements:
//   m = first_keep m + first_add factor g,   v = second_keep v + second_add (factor g)^2
//   x = decay x - rate m / (sqrt(v) second_root + epsilon)
struct AdamWFactors {
  double gradient = 1, first_keep = 0, first_add = 0, second_keep = 0, second_add = 0, decay = 1;
  double rate = 0, second_root = 0, epsilon = 0;
};

// At update t, counted from 1.
XFORMER_DEVICE AdamWFactors adamw_factors(double rate, double beta1, double beta2, double epsilon, double weight_decay,
                                          bool rectified, double factor, double t) {
  AdamWFactors f;
  const double power = std::pow(beta2, t), first_share = 1 - std::pow(beta1, t);
  f.gradient = factor;
  f.first_keep = beta1, f.first_add = 1 - beta1;
  f.second_keep = beta2, f.second_add = 1 - beta2;
  f.decay = 1 - rate * weight_decay;
  f.rate = rate / first_share;
  f.second_root = 1 / std::sqrt(1 - power);
  f.epsilon = epsilon;
  if (!rectified) return f;
  const double longest = 2 / (1 - beta2) - 1, length = longest - 2 * t * power / (1 - power);
  if (length < 5) {
    f.second_root = 0, f.epsilon = 1;
    return f;
  }
  const double variance = (length - 4) / (longest - 4) * (length - 2) / length * longest / (longest - 2);
  f.rate = rate * std::sqrt((1 - power) * variance) / first_share;
  f.second_root = 1;
  return f;
}

}  // namespace xformer::kernels
