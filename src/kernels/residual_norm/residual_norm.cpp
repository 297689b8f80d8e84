#include "kernels/residual_norm/residual_norm.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include "kernels/fused.h"
#include "kernels/residual_norm/cpu.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

void keep_drop(AutogradContext* context, const DropoutPlace& drop) {
  context->saved_data["p"] = drop.p;
  context->saved_data["site"] = drop.site;
}

DropoutPlace kept_drop(AutogradContext* context, const at::Tensor& state) {
  return {context->saved_data["p"].toDouble(), state, context->saved_data["site"].toInt()};
}

struct ResidualNormFunction : torch::autograd::Function<ResidualNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& maybe_branch, const at::Tensor& weight,
                               const at::Tensor& bias, double epsilon, const DropoutPlace& drop) {
    RECORD_FUNCTION("xformer::residual_norm", operands(x, maybe_branch, weight, bias));
    const at::Tensor branch = maybe_branch.value_or(at::Tensor());
    const ResidualNormForward result = residual_norm_forward_cpu(x, branch, drop, {weight, bias, epsilon});
    context->set_materialize_grads(false);
    context->save_for_backward({result.sum, result.mean, result.rstd, weight, bias, drop.state});
    context->saved_data["branch"] = branch.defined();
    context->saved_data["epsilon"] = epsilon;
    keep_drop(context, drop);
    return {result.sum, result.normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::residual_norm_backward", operands(gradients, context->get_saved_variables()));
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[3], &bias = saved[4];
    const DropoutPlace drop = kept_drop(context, saved[5]);
    const bool has_branch = context->saved_data["branch"].toBool();
    if (!gradients[1].defined())  // nobody used the normed rows
      return {gradients[0], has_branch && gradients[0].defined() ? drop(gradients[0]) : at::Tensor(), {}, {}, {}, {}};
    const ResidualNormGradients result =
        residual_norm_backward_cpu(gradients[0], gradients[1], {sum, {}, saved[1], saved[2]}, has_branch, drop, weight);
    // Held against the gradients at x = sum, branch = 0: both passes see nothing of x and branch but their sum.
    check_backward("xformer::residual_norm", {sum, has_branch ? at::zeros_like(sum) : at::Tensor(), weight, bias},
                   gradients, {result.x, result.branch, result.weight, result.bias}, [&](const variable_list& inputs) {
                     const ResidualNorm meant = residual_norm_reference(
                         inputs[0], inputs[1], drop, {inputs[2], inputs[3], context->saved_data["epsilon"].toDouble()});
                     return variable_list{meant.sum, meant.normed};
                   });
    return {result.x, result.branch, result.weight, result.bias, at::Tensor(), at::Tensor()};
  }
};

struct ResidualFunction : torch::autograd::Function<ResidualFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& branch,
                            const DropoutPlace& drop) {
    RECORD_FUNCTION("xformer::residual", operands(x, branch));
    context->save_for_backward({drop.state});
    keep_drop(context, drop);
    return residual_norm_forward_cpu(x, branch, drop, {}).sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const DropoutPlace drop = kept_drop(context, context->get_saved_variables()[0]);
    return {gradients[0], drop(gradients[0]), at::Tensor()};
  }
};

}  // namespace

ResidualNorm residual_norm(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                           const NormWeights& norm) {
  if (!runs_fused_heard("residual_norm", {x, branch, norm.weight, norm.bias}))
    return residual_norm_reference(x, branch, drop, norm);
  const std::optional<at::Tensor> maybe_branch = branch.defined() ? std::make_optional(branch) : std::nullopt;
  const variable_list result = ResidualNormFunction::apply(x, maybe_branch, norm.weight, norm.bias, norm.epsilon, drop);
  check_forward("xformer::residual_norm", result, [&] {
    const ResidualNorm meant = residual_norm_reference(x, branch, drop, norm);
    return variable_list{meant.sum, meant.normed};
  });
  return {result[0], result[1]};
}

at::Tensor residual(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop) {
  if (!runs_fused_heard("residual", {x, branch})) return x + drop(branch);
  const at::Tensor result = ResidualFunction::apply(x, branch, drop);
  check_forward("xformer::residual", {result}, [&] { return variable_list{x + drop(branch)}; });
  return result;
}

ResidualNorm residual_norm_reference(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                                     const NormWeights& norm) {
  const at::Tensor sum = branch.defined() ? x + drop(branch) : x;
  return {sum, at::layer_norm(sum, {sum.size(-1)}, norm.weight, norm.bias, norm.epsilon, /*cudnn_enable=*/false)};
}

}  // namespace xformer::kernels
