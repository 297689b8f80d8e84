// The passes of linear maps of a norm (linear.h) on a device, but for the launches themselves: cuda.cpp gives them,
// tests walk the programs. The maps' launch norms its rows itself; so, backwards, does that of the weights' gradients.
// The signatures are the CPU's (cpu.h).
#pragma once

#include "kernels/linear/device.h"
#include "kernels/residual_norm/device.h"

namespace xformer::kernels {

// Launch takes LinearArguments.
template <class Launch>
NormedLinearForward normed_linear_forward_device(const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                                                 const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                                 const at::Tensor& needed, const Launch& launch) {
  const at::Tensor x = dense_floats(x_in);
  const int64_t width = x.size(-1);
  TORCH_CHECK(width <= kWidestNormTile, "a norm before linear maps on a device has rows of at most ", kWidestNormTile);
  TORCH_CHECK(norm.weight.numel() == width && norm.bias.numel() == width, "norm weights of another width");
  NormedLinearForward made;
  made.mean = at::empty({x.numel() / width}, x.options()), made.rstd = at::empty_like(made.mean);
  const NormWeights dense{dense_floats(norm.weight), dense_floats(norm.bias), norm.epsilon};
  made.results = linear_forward_device(x, weights, biases, needed, launch, tile_norm(dense, made.mean, made.rstd));
  return made;
}

// LaunchMap takes LinearArguments, LaunchNorm ResidualNormBackwardArguments, LaunchWeights WeightGradientArguments.
template <class LaunchMap, class LaunchNorm, class LaunchWeights>
NormedLinearGradients normed_linear_backward_device(const std::vector<at::Tensor>& gradients, const at::Tensor& past,
                                                    const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                                                    const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                                    const at::Tensor& mean, const at::Tensor& rstd,
                                                    const at::Tensor& needed, const LaunchMap& launch_map,
                                                    const LaunchNorm& launch_norm,
                                                    const LaunchWeights& launch_weights) {
  const at::Tensor x = dense_floats(x_in);
  const NormWeights dense{dense_floats(norm.weight), dense_floats(norm.bias), norm.epsilon};
  NormedLinearGradients result{linear_backward_device(gradients, x, weights, biases, needed, /*x_wanted=*/true,
                                                      launch_map, launch_weights, tile_norm(dense, mean, rstd)),
                               {},
                               {}};
  ResidualNormGradients own = residual_norm_backward_device(
      past, result.maps.x, {x, {}, mean, rstd}, /*has_branch=*/false, {}, dense.weight, needed, launch_norm);
  result.maps.x = own.x, result.weight = own.weight, result.bias = own.bias;
  return result;
}

}  // namespace xformer::kernels
