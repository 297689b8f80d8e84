// The passes of feed_forward.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are the CPU's (cpu.h).
#pragma once

#include "kernels/feed_forward/cpu.h"
#include "kernels/feed_forward/program.h"
#include "kernels/linear/device.h"

namespace xformer::kernels {

// Maps without gaps.
[[nodiscard]] inline LinearMap dense_map(const LinearMap& map) {
  return {dense_floats(map.weight), dense_floats(map.bias)};
}

// What both passes are told of x and the maps, all dense; all must outlive the launch.
[[nodiscard]] inline FeedForwardArguments feed_forward_arguments(const at::Tensor& x, const LinearMap& in,
                                                                 const LinearMap& out, bool tanh) {
  FeedForwardArguments a;
  a.product = product_kind();
  a.m = x.size(-1), a.rows = x.numel() / a.m, a.f = in.weight.size(0), a.k = out.weight.size(0);
  TORCH_CHECK(in.weight.size(1) == a.m && out.weight.size(1) == a.f && std::max(a.m, a.k) <= kFeedForwardWidest,
              "a feed-forward part on a device is at most ", kFeedForwardWidest, " wide");
  a.in_weight = read_floats(in.weight), a.in_bias = read_floats(in.bias);
  a.out_weight = read_floats(out.weight), a.out_bias = read_floats(out.bias);
  a.x = read_stored(x);
  a.tanh = tanh;
  a.wide = wide_rows({x, in.weight, in.bias, out.weight, out.bias});
  return a;
}

// Launch takes FeedForwardArguments.
template <class Launch>
FeedForwardForward feed_forward_forward_device(const at::Tensor& x_in, const LinearMap& in_map,
                                               const LinearMap& out_map, bool tanh, const DropoutPlace& drop,
                                               const at::Tensor& needed_in, const Launch& launch) {
  const at::Tensor x = dense_rows(x_in);
  const LinearMap in = dense_map(in_map), out = dense_map(out_map);
  FeedForwardArguments a = feed_forward_arguments(x, in, out, tanh);
  const at::Tensor needed = dense_flags(needed_in, a.rows);
  a.needed = read_flags(needed);
  const at::TensorOptions stored = x.options().dtype(product_type(x));
  FeedForwardForward result{at::empty(with_width(x, a.k), stored), at::empty(with_width(x, a.f), stored)};
  a.out = written_stored(result.out), a.z = result.z.mutable_data_ptr();
  a.half = half_among({x, result.z});
  a.drop = device_drop(drop, result.z);
  launch(a);
  return result;
}

// Launch takes FeedForwardArguments, LaunchWeights WeightGradientArguments.
template <class Launch, class LaunchWeights>
FeedForwardGradients feed_forward_backward_device(const at::Tensor& gradient_in, const at::Tensor& x_in,
                                                  const at::Tensor& z, const LinearMap& in_map,
                                                  const LinearMap& out_map, bool tanh, const DropoutPlace& drop,
                                                  const at::Tensor& needed_in, bool x_wanted, const Launch& launch,
                                                  const LaunchWeights& launch_weights) {
  const at::Tensor x = dense_rows(x_in), gradient = dense_rows(gradient_in);
  const LinearMap in = dense_map(in_map), out = dense_map(out_map);
  FeedForwardArguments a = feed_forward_arguments(x, in, out, tanh);
  const at::Tensor needed = dense_flags(needed_in, a.rows);
  a.needed = read_flags(needed);
  const at::Tensor active = at::empty_like(z), slope = at::empty_like(z);
  FeedForwardGradients result;
  if (x_wanted) result.x = at::empty_like(x), a.x_gradient = written_stored(result.x);
  a.gradient = read_stored(gradient), a.z = z.mutable_data_ptr();
  a.active = active.mutable_data_ptr(), a.slope = slope.mutable_data_ptr();
  a.half = half_among({x, gradient, z});
  a.wide = a.wide && wide_rows({gradient, z});
  a.drop = device_drop(drop, z);
  launch(a);
  WeightGradientSum sum(a.needed);
  sum.add(slope, x, /*bias=*/true);
  sum.add(gradient, active, /*bias=*/true);
  const std::vector<LinearMap> found = sum.run(launch_weights);
  result.in = found[0], result.out = found[1];
  return result;
}

}  // namespace xformer::kernels
