// The passes of branch.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the programs.
// Backwards they are those of the norm and of what made the branch, one behind the other.
#pragma once

#include "kernels/branch/pass.h"
#include "kernels/branch/program.h"
#include "kernels/feed_forward/device.h"
#include "kernels/needed.h"
#include "kernels/residual_norm/device.h"

namespace xformer::kernels {

// Whether the programs take these.
[[nodiscard]] inline bool fits_branch_programs(const at::Tensor& x, const Branch& branch, const NormWeights& norm) {
  if (!branch.out.weight.defined() || x.numel() == 0 || branch.rows.numel() == 0) return false;
  for (const at::Tensor& one : {x, branch.out.weight, branch.in.weight, norm.weight})
    if (one.defined() && one.scalar_type() != at::kFloat) return false;
  if (branch.rows.scalar_type() == at::kDouble) return false;
  const bool part = branch.in.weight.defined();
  return branch.out.weight.numel() <= kMostWeights && x.size(-1) <= kWidestEpilogue &&
         (!part || (branch.in.weight.numel() <= kMostWeights && branch.rows.size(-1) <= kFeedForwardWidest));
}

// LaunchMap takes LinearBranchArguments, LaunchPart FeedForwardArguments.
template <class LaunchMap, class LaunchPart>
BranchForward branch_forward_device(const at::Tensor& x_in, const Branch& branch, const DropoutPlace& drop,
                                    const NormWeights& norm, const LaunchMap& launch_map,
                                    const LaunchPart& launch_part) {
  TORCH_CHECK(fits_branch_programs(x_in, branch, norm), "a branch on a device is added to floats, at most ",
              kWidestEpilogue, " wide");
  const at::Tensor x = dense_floats(x_in), rows = dense_rows(branch.rows), weight = dense_floats(norm.weight),
                   bias = dense_floats(norm.bias);
  const LinearMap in = dense_map(branch.in), out = dense_map(branch.out);
  const at::Tensor needed = dense_flags(branch.needed, x.numel() / x.size(-1));
  BranchForward made;
  made.norm.sum = at::empty_like(x);
  TORCH_CHECK(rows.numel() / rows.size(-1) == x.numel() / x.size(-1) && out.weight.size(0) == x.size(-1),
              "a branch of another shape than x");
  ResidualEpilogue residual;
  residual.x = read_floats(x), residual.sum = written_floats(made.norm.sum);
  if (weight.defined()) {
    made.norm.normed = at::empty_like(x);
    made.norm.mean = at::empty({x.numel() / x.size(-1)}, x.options());
    made.norm.rstd = at::empty_like(made.norm.mean);
    residual.normed = written_floats(made.norm.normed), residual.mean = written_floats(made.norm.mean);
    residual.rstd = written_floats(made.norm.rstd);
    residual.weight = read_floats(weight), residual.bias = read_floats(bias);
    residual.epsilon = static_cast<float>(norm.epsilon);
  }
  residual.drop = device_drop(drop, x);
  const bool wide = wide_rows({x, weight, bias});
  if (in.weight.defined()) {
    FeedForwardArguments a = feed_forward_arguments(rows, in, out, branch.tanh);
    made.z = at::empty(with_width(rows, a.f), rows.options().dtype(product_type(rows)));
    a.z = made.z.mutable_data_ptr(), a.half = half_among({rows, made.z});
    a.drop = device_drop(branch.drop, made.z);
    a.wide = a.wide && wide, a.residual = residual, a.needed = read_flags(needed);
    launch_part(a);
  } else {
    LinearBranchArguments a;
    a.product = product_kind();
    a.half = half_among({rows});
    a.x = read_stored(rows), a.weight = read_floats(out.weight), a.bias = read_floats(out.bias);
    a.in = rows.size(-1), a.rows = rows.numel() / a.in, a.out = x.size(-1);
    TORCH_CHECK(out.weight.size(1) == a.in, "a linear map of another width than its rows");
    a.wide = wide && wide_rows({rows, out.weight, out.bias}), a.residual = residual, a.needed = read_flags(needed);
    launch_map(a);
  }
  return made;
}

// LaunchNorm takes ResidualNormBackwardArguments, LaunchMap LinearArguments, LaunchPart FeedForwardArguments,
// LaunchWeights WeightGradientArguments.
template <class LaunchNorm, class LaunchMap, class LaunchPart, class LaunchWeights>
BranchGradients branch_backward_device(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                       const BranchForward& made, const Branch& branch, const DropoutPlace& drop,
                                       const at::Tensor& weight, const LaunchNorm& launch_norm,
                                       const LaunchMap& launch_map, const LaunchPart& launch_part,
                                       const LaunchWeights& launch_weights) {
  ResidualNormGradients outer;
  if (normed_gradient.defined())
    outer = residual_norm_backward_device(sum_gradient, normed_gradient, made.norm, /*has_branch=*/true, drop, weight,
                                          branch.needed, launch_norm);
  else if (weight.defined()) outer.x = needed_alone(sum_gradient, branch.needed);  // nobody used the norm
  else outer.x = sum_gradient;
  if (!normed_gradient.defined()) outer.branch = dropped_on_device(drop, outer.x.contiguous());
  BranchGradients result;
  result.x = outer.x, result.weight = outer.weight, result.bias = outer.bias;
  if (branch.in.weight.defined()) {
    const FeedForwardGradients found =
        feed_forward_backward_device(outer.branch, branch.rows, made.z, branch.in, branch.out, branch.tanh, branch.drop,
                                     branch.needed, /*x_wanted=*/true, launch_part, launch_weights);
    result.rows = found.x, result.in = found.in, result.out = found.out;
  } else {
    std::vector<at::Tensor> biases;
    if (branch.out.bias.defined()) biases.push_back(branch.out.bias);
    const LinearGradients found =
        linear_backward_device({outer.branch}, branch.rows, {branch.out.weight}, biases, branch.needed,
                               /*x_wanted=*/true, launch_map, launch_weights);
    result.rows = found.x, result.out.weight = found.weights[0];
    if (!biases.empty()) result.out.bias = found.biases[0];
  }
  return result;
}

}  // namespace xformer::kernels
