#include "kernels/feed_forward/feed_forward.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include "kernels/feed_forward/cpu.h"
#include "kernels/fused.h"
#include "kernels/gelu_dropout/gelu_dropout.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

constexpr int64_t kMostWeights = int64_t{1} << 16;  // of one map; of larger ones LibTorch's products lose nothing

// Input, then weight and bias of both maps.
struct FeedForwardFunction : torch::autograd::Function<FeedForwardFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& in_weight,
                            const at::Tensor& in_bias, const at::Tensor& out_weight, const at::Tensor& out_bias,
                            bool tanh, const DropoutPlace& drop) {
    RECORD_FUNCTION("xformer::feed_forward", operands(x, in_weight, out_weight));
    const FeedForwardForward result =
        feed_forward_forward_cpu(x, {in_weight, in_bias}, {out_weight, out_bias}, tanh, drop);
    context->save_for_backward({x, in_weight, in_bias, out_weight, out_bias, result.z, drop.state});
    context->saved_data["tanh"] = tanh;
    context->saved_data["p"] = drop.p;
    context->saved_data["site"] = drop.site;
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    RECORD_FUNCTION("xformer::feed_forward_backward", operands(gradients[0], saved[0], saved[5]));
    const bool tanh = context->saved_data["tanh"].toBool();
    const DropoutPlace drop(context->saved_data["p"].toDouble(), saved[6], context->saved_data["site"].toInt());
    const FeedForwardGradients found =
        feed_forward_backward_cpu(gradients[0], saved[0], saved[5], {saved[1], saved[2]}, {saved[3], saved[4]}, tanh,
                                  drop, context->needs_input_grad(0));
    variable_list result{found.x, found.in.weight, found.in.bias, found.out.weight, found.out.bias};
    const variable_list inputs(saved.begin(), saved.begin() + 5);
    check_backward("xformer::feed_forward", inputs, gradients, result, [&](const variable_list& leaves) {
      return variable_list{
          feed_forward_reference(leaves[0], {leaves[1], leaves[2]}, {leaves[3], leaves[4]}, tanh, drop)};
    });
    result.resize(7);  // and nothing for form and dropout
    return result;
  }
};

}  // namespace

at::Tensor feed_forward(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                        const DropoutPlace& drop) {
  const bool small = in.weight.numel() <= kMostWeights && out.weight.numel() <= kMostWeights;
  const bool fused = small && x.numel() > 0 && !at::autocast::is_autocast_enabled(x.device().type()) &&
                     runs_fused_heard("feed_forward", {x, in.weight, in.bias, out.weight, out.bias});
  if (!fused) return linear(gelu_dropout(linear(x, in), tanh, drop), out);
  const at::Tensor result = FeedForwardFunction::apply(x, in.weight, in.bias, out.weight, out.bias, tanh, drop);
  check_forward("xformer::feed_forward", {result},
                [&] { return variable_list{feed_forward_reference(x, in, out, tanh, drop)}; });
  return result;
}

at::Tensor feed_forward_reference(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                                  const DropoutPlace& drop) {
  const at::Tensor active = gelu_dropout_reference(at::linear(x, in.weight, in.bias), tanh, drop);
  return at::linear(active, out.weight, out.bias);
}

}  // namespace xformer::kernels
