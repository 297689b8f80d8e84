#include "kernels/window_attention/window_attention.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/window_attention/cpu.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

// What is no differentiable input.
struct Call {
  WindowAttentionOptions options;
  at::Tensor extra_allowed, extra_places;
};

ExtraKeys extra_of(at::TensorList keys_and_values, const at::Tensor& allowed, const at::Tensor& places) {
  if (keys_and_values.empty()) return {};
  return {keys_and_values[0], keys_and_values[1], allowed, places};
}

// Inputs q, k, v and the extra keys and values, if any.
struct WindowAttentionFunction : torch::autograd::Function<WindowAttentionFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               at::TensorList extra, const Call& call) {
    RECORD_FUNCTION("xformer::window_attention", operands(q, k, v, extra));
    const auto& [windows, valid, dropout] = call.options;
    const WindowAttentionForward result =
        window_attention_forward_cpu(q, k, v, extra_of(extra, call.extra_allowed, call.extra_places), call.options);
    context->set_materialize_grads(false);
    variable_list saved{result.out, result.log_sum, valid, call.extra_allowed, call.extra_places, dropout.state, q, k,
                        v};
    saved.insert(saved.end(), extra.begin(), extra.end());
    context->save_for_backward(saved);
    context->saved_data["windows"] =
        std::vector<int64_t>{windows.length, windows.dilation, windows.block, windows.blocks,
                             windows.before, windows.after,    windows.back,  windows.ahead};
    context->saved_data["dropout"] = dropout.p;
    context->saved_data["site"] = dropout.site;
    return {result.out, result.log_sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::window_attention_backward", operands(gradients, context->get_saved_variables()));
    const variable_list saved = context->get_saved_variables();
    const variable_list inputs(saved.begin() + 6, saved.end());
    if (!gradients[0].defined() && !gradients[1].defined()) return variable_list(inputs.size() + 1);
    const std::vector<int64_t> sizes = context->saved_data["windows"].toIntVector();
    const WindowAttentionOptions options{
        {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7]},
        saved[2],
        {context->saved_data["dropout"].toDouble(), saved[5], context->saved_data["site"].toInt()}};
    const auto extra_in = [&](const variable_list& all) {
      return extra_of(at::TensorList(all).slice(3), saved[3], saved[4]);
    };
    const WindowAttentionGradients found = window_attention_backward_cpu(
        gradients[0], gradients[1], inputs[0], inputs[1], inputs[2], extra_in(inputs), {saved[0], saved[1]}, options);
    variable_list result{found.q, found.k, found.v};
    if (inputs.size() > 3) result.insert(result.end(), {found.extra_k, found.extra_v});
    check_backward("xformer::window_attention", inputs, gradients, result, [&](const variable_list& leaves) {
      at::Tensor log_sum;
      const at::Tensor out = window_attention_reference(leaves[0], leaves[1], leaves[2], extra_in(leaves), options,
                                                        gradients[1].defined() ? &log_sum : nullptr);
      return variable_list{out, log_sum};
    });
    result.emplace_back();  // of the call
    return result;
  }
};

}  // namespace

at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ExtraKeys& extra,
                            const WindowAttentionOptions& options, at::Tensor* log_sum) {
  XF_ASSERT(q.size(2) == options.windows.length && k.size(2) == options.windows.length,
            "windows over {} tokens got {} and {}", options.windows.length, q.size(2), k.size(2));
  if (!runs_fused("window_attention", {q, k, v, extra.k, extra.v}))
    return window_attention_reference(q, k, v, extra, options, log_sum);
  const bool more = extra.count() > 0;
  const variable_list keys_and_values = more ? variable_list{extra.k, extra.v} : variable_list{};
  const variable_list result = WindowAttentionFunction::apply(
      q, k, v, at::TensorList(keys_and_values),
      Call{options, more ? extra.allowed : at::Tensor(), more ? extra.places : at::Tensor()});
  check_forward("xformer::window_attention", result, [&] {
    at::Tensor sums;
    const at::Tensor out = window_attention_reference(q, k, v, extra, options, &sums);
    return variable_list{out, sums};
  });
  if (log_sum != nullptr) *log_sum = result[1];
  return result[0];
}

}  // namespace xformer::kernels
