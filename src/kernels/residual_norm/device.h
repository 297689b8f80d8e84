// The passes of residual_norm.h on a device, but for the launch itself: cuda.cpp gives one, tests walk the program
// instead. The signatures are the CPU's (cpu.h).
#pragma once

#include <ATen/Functions.h>
#include <ATen/OpMathType.h>

#include "kernels/device/tensors.h"
#include "kernels/residual_norm/cpu.h"
#include "kernels/residual_norm/program.h"

namespace xformer::kernels {

// Launch takes ResidualNormForwardArguments.
template <class Launch>
ResidualNormForward residual_norm_forward_device(const at::Tensor& x_in, const at::Tensor& branch_in,
                                                 const DropoutPlace& drop, const NormWeights& norm,
                                                 const at::Tensor& needed_in, const Launch& launch) {
  const at::Tensor x = x_in.contiguous(), branch = branch_in.defined() ? branch_in.contiguous() : branch_in;
  const bool has_branch = branch.defined(), has_norm = norm.weight.defined();
  TORCH_CHECK(!has_branch || x.sizes() == branch.sizes(), "x and its branch have different shapes");
  ResidualNormForward result{has_branch ? at::empty_like(x) : x_in, {}, {}, {}};
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0;
  const at::TensorOptions computed = x.options().dtype(at::toOpMathType(x.scalar_type()));
  at::Tensor weight, bias;
  if (has_norm) {
    TORCH_CHECK(norm.weight.numel() == width && norm.bias.numel() == width, "norm weights of another width");
    result.normed = at::empty_like(x);
    result.mean = at::empty({rows}, computed);
    result.rstd = at::empty({rows}, computed);
    weight = norm.weight.contiguous(), bias = norm.bias.contiguous();
  }
  if (x.numel() == 0) return result;
  const at::Tensor needed = dense_flags(needed_in, rows);
  if (width > widest_row(element_type(x))) {
    TORCH_CHECK(!needed.defined(), "of rows this wide all are made");
    if (has_branch) result.sum = x + dropped_on_device(drop, branch);
    if (!has_norm) return result;
    const auto [normed, mean, rstd] = at::native_layer_norm(result.sum, {width}, weight, bias, norm.epsilon);
    return {result.sum, normed, mean.view({rows}), rstd.view({rows})};
  }
  ResidualNormForwardArguments a;
  a.type = element_type(x), a.branch_type = element_type(has_branch ? branch : x);
  a.x = x.const_data_ptr();
  if (has_branch) a.branch = branch.const_data_ptr(), a.sum = result.sum.mutable_data_ptr();
  if (has_norm) {
    a.normed = result.normed.mutable_data_ptr();
    a.mean = result.mean.mutable_data_ptr(), a.rstd = result.rstd.mutable_data_ptr();
    a.weight = weight.const_data_ptr(), a.bias = bias.const_data_ptr();
  }
  a.needed = read_flags(needed);
  a.rows = rows, a.width = width, a.epsilon = norm.epsilon;
  a.wide = width % kRun == 0 && reads_wide({x, branch, weight, bias});
  if (has_branch) a.drop = device_drop(drop, x);
  launch(a);
  return result;
}

// Launch takes ResidualNormBackwardArguments.
template <class Launch>
ResidualNormGradients residual_norm_backward_device(const at::Tensor& sum_gradient_in,
                                                    const at::Tensor& normed_gradient_in,
                                                    const ResidualNormForward& forward, bool has_branch,
                                                    const DropoutPlace& drop, const at::Tensor& weight_in,
                                                    const at::Tensor& needed_in, const Launch& launch) {
  const at::Tensor sum = forward.sum.contiguous(), normed_gradient = normed_gradient_in.contiguous();
  const at::Tensor sum_gradient = sum_gradient_in.defined() ? sum_gradient_in.contiguous() : sum_gradient_in;
  const at::Tensor weight = weight_in.contiguous();
  const int64_t width = sum.size(-1), rows = width > 0 ? sum.numel() / width : 0;
  const bool drops = has_branch && dropout_threshold(drop.p) > 0;
  const at::Tensor needed = dense_flags(needed_in, rows);
  ResidualNormGradients result;
  if (width > widest_row(element_type(sum)) && sum.numel() > 0) {
    TORCH_CHECK(!needed.defined(), "of rows this wide all are made");
    const auto mean = forward.mean.view({rows, 1}), rstd = forward.rstd.view({rows, 1});
    auto [x, of_weight, of_bias] =
        at::native_layer_norm_backward(normed_gradient.view({rows, width}), sum.view({rows, width}), {width}, mean,
                                       rstd, weight, weight, {true, true, true});
    x = x.view(sum.sizes());
    if (sum_gradient.defined()) x = x + sum_gradient;
    return {x, has_branch ? dropped_on_device(drop, x) : at::Tensor(), of_weight, of_bias};
  }
  result.x = at::empty_like(sum);
  if (has_branch) result.branch = drops ? at::empty_like(sum) : result.x;
  const LaunchGrid grid = row_backward_grid(rows, width);
  const at::Tensor parts = at::empty({sum.numel() == 0 ? 0 : grid.blocks, 2, width},
                                     sum.options().dtype(at::toOpMathType(sum.scalar_type())));
  at::Tensor total;  // [2, m]
  if (sum.numel() > 0) {
    ResidualNormBackwardArguments a;
    a.type = element_type(sum);
    a.sum = sum.const_data_ptr(), a.mean = forward.mean.const_data_ptr(), a.rstd = forward.rstd.const_data_ptr();
    a.weight = weight.const_data_ptr(), a.normed_gradient = normed_gradient.const_data_ptr();
    if (sum_gradient.defined()) a.sum_gradient = sum_gradient.const_data_ptr();
    a.x_gradient = result.x.mutable_data_ptr();
    if (drops) a.branch_gradient = result.branch.mutable_data_ptr();
    a.parts = parts.mutable_data_ptr();
    if (parts.scalar_type() == at::kFloat) {
      total = at::empty({2, width}, parts.options());
      a.sums = written_floats(total);
    }
    a.needed = read_flags(needed);
    a.rows = rows, a.width = width, a.has_branch = has_branch;
    a.wide = width % kRun == 0 && reads_wide({sum, normed_gradient, sum_gradient, weight});
    if (drops) a.drop = device_drop(drop, sum);
    launch(a);
  }
  if (!total.defined()) total = parts.sum(0);
  result.weight = total.select(0, 0);
  result.bias = total.select(0, 1);
  return result;
}

}  // namespace xformer::kernels
