#include "kernels/gelu_dropout/gelu_dropout.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include "kernels/fused.h"
#include "kernels/gelu_dropout/cpu.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

struct GeluDropoutFunction : torch::autograd::Function<GeluDropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
    RECORD_FUNCTION("xformer::gelu_dropout", operands(x));
    context->save_for_backward({x, drop.state});
    context->saved_data["tanh"] = tanh;
    context->saved_data["p"] = drop.p;
    context->saved_data["site"] = drop.site;
    return gelu_dropout_forward_cpu(x, tanh, drop);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::gelu_dropout_backward", operands(gradients, context->get_saved_variables()));
    const variable_list saved = context->get_saved_variables();
    const bool tanh = context->saved_data["tanh"].toBool();
    const DropoutPlace drop(context->saved_data["p"].toDouble(), saved[1], context->saved_data["site"].toInt());
    const at::Tensor result = gelu_dropout_backward_cpu(gradients[0], saved[0], tanh, drop);
    check_backward("xformer::gelu_dropout", {saved[0]}, gradients, {result}, [&](const variable_list& inputs) {
      return variable_list{gelu_dropout_reference(inputs[0], tanh, drop)};
    });
    return {result, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor gelu_dropout(const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
  if (!runs_fused_heard("gelu_dropout", {x})) return gelu_dropout_reference(x, tanh, drop);
  const at::Tensor result = GeluDropoutFunction::apply(x, tanh, drop);
  check_forward("xformer::gelu_dropout", {result},
                [&] { return variable_list{gelu_dropout_reference(x, tanh, drop)}; });
  return result;
}

at::Tensor gelu_dropout_reference(const at::Tensor& x, bool tanh, const DropoutPlace& drop) {
  return drop(at::gelu(x, tanh ? "tanh" : "none"));
}

}  // namespace xformer::kernels
