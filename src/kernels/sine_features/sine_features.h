// Random features of the Gaussian kernel (Rahimi, Recht, "Random Features for Large-Scale Kernel Machines", 2007; as
// Peng et al., "Random Feature Attention", 2021, have them): of each product with a direction its sine and its cosine,
//   phi = amplitude [sin y; cos y]
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// y [.., r] -> [.., 2 r]: sines, then cosines.
[[nodiscard]] at::Tensor sine_features(const at::Tensor& y, double amplitude);

// The definition.
[[nodiscard]] at::Tensor sine_features_reference(const at::Tensor& y, double amplitude);

}  // namespace xformer::kernels
