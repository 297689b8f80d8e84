#include "kernels/feature_attention/feature_attention.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include "core/error.h"
#include "kernels/feature_attention/cpu.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

struct FeatureAttentionFunction : torch::autograd::Function<FeatureAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const FeatureAttentionOptions& options) {
    RECORD_FUNCTION("xformer::feature_attention", operands(q, k, v, options.omega));
    const FeatureAttentionForward result = feature_attention_forward_cpu(q, k, v, options);
    context->save_for_backward({q, k, v, options.omega, options.mask.key_valid, options.query_valid, result.out,
                                result.table, result.denominator, result.largest, result.winner});
    context->saved_data["map"] = static_cast<int64_t>(options.map);
    context->saved_data["scale"] = options.scale;
    context->saved_data["floor"] = options.floor;
    context->saved_data["epsilon"] = options.epsilon;
    context->saved_data["divisor"] = options.divisor;
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::feature_attention_backward", operands(gradients, context->get_saved_variables()));
    const variable_list saved = context->get_saved_variables();
    const FeatureAttentionOptions options{static_cast<FeatureMap>(context->saved_data["map"].toInt()),
                                          saved[3],
                                          context->saved_data["scale"].toDouble(),
                                          context->saved_data["floor"].toDouble(),
                                          context->saved_data["epsilon"].toDouble(),
                                          context->saved_data["divisor"].toDouble(),
                                          {saved[4]},
                                          saved[5]};
    const FeatureAttentionGradients result = feature_attention_backward_cpu(
        gradients[0], saved[0], saved[1], saved[2], {saved[6], saved[7], saved[8], saved[9], saved[10]}, options);
    check_backward("xformer::feature_attention", {saved[0], saved[1], saved[2]}, gradients,
                   {result.q, result.k, result.v}, [&](const variable_list& inputs) {
                     return variable_list{feature_attention_reference(inputs[0], inputs[1], inputs[2], options)};
                   });
    return {result.q, result.k, result.v, at::Tensor()};
  }
};

}  // namespace

at::Tensor feature_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const FeatureAttentionOptions& options) {
  XF_ASSERT(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && k.size(2) == v.size(2) && q.size(3) == k.size(3),
            "feature attention takes [b,h,n,d], [b,h,m,d] and [b,h,m,e]");
  XF_ASSERT(options.omega.defined() || options.map != FeatureMap::kSoftmax, "softmax's features need a projection");
  if (options.mask.causal || !runs_fused("feature_attention", {q, k, v, options.omega}))
    return feature_attention_reference(q, k, v, options);
  const at::Tensor result = FeatureAttentionFunction::apply(q, k, v, options);
  check_forward("xformer::feature_attention", {result},
                [&] { return variable_list{feature_attention_reference(q, k, v, options)}; });
  return result;
}

}  // namespace xformer::kernels
