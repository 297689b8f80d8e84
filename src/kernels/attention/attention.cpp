#include "kernels/attention/attention.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include "core/error.h"
#include "kernels/attention/cpu.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

// Options travel to the backward pass as tensors and numbers.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options) {
    RECORD_FUNCTION("xformer::attention", operands(q, k, v));
    const AttentionForward result = attention_forward_cpu(q, k, v, options);
    context->save_for_backward(
        {q, k, v, result.out, result.log_sum, options.mask.key_valid, options.query_valid, options.state});
    context->saved_data["scale"] = options.scale;
    context->saved_data["causal"] = options.mask.causal;
    context->saved_data["dropout"] = options.dropout;
    context->saved_data["site"] = options.site;
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    RECORD_FUNCTION("xformer::attention_backward", operands(gradients[0], saved[0], saved[1], saved[2], saved[3]));
    const AttentionOptions options{context->saved_data["scale"].toDouble(),
                                   {saved[5], context->saved_data["causal"].toBool()},
                                   saved[6],
                                   context->saved_data["dropout"].toDouble(),
                                   saved[7],
                                   context->saved_data["site"].toInt()};
    const AttentionGradients result =
        attention_backward_cpu(gradients[0], saved[0], saved[1], saved[2], {saved[3], saved[4]}, options);
    check_backward("xformer::attention", {saved[0], saved[1], saved[2]}, gradients, {result.q, result.k, result.v},
                   [&](const variable_list& inputs) {
                     return variable_list{attention_reference(inputs[0], inputs[1], inputs[2], options)};
                   });
    return {result.q, result.k, result.v, at::Tensor()};
  }
};

}  // namespace

void AttentionOptions::drop(const Dropout& dropout_site, bool training) {
  if (!training || dropout_site.p() == 0) return;
  dropout = dropout_site.p();
  state = dropout_site.stream()->state;
  site = dropout_site.site();
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options) {
  XF_ASSERT(!options.mask.causal || q.size(2) == k.size(2), "causal needs as many keys ({}) as queries ({})", k.size(2),
            q.size(2));
  if (!runs_fused("attention", {q, k, v})) return attention_reference(q, k, v, options);
  const at::Tensor result = AttentionFunction::apply(q, k, v, options);
  check_forward("xformer::attention", {result}, [&] { return variable_list{attention_reference(q, k, v, options)}; });
  return result;
}

}  // namespace xformer::kernels
