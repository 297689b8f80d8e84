#include "kernels/embedding/embedding.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include "kernels/embedding/cpu.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens, const at::Tensor& ids,
                            const std::optional<at::Tensor>& maybe_positions, const DropoutPlace& drop) {
    RECORD_FUNCTION("xformer::embedding", operands(ids, maybe_positions));
    const at::Tensor positions = maybe_positions.value_or(at::Tensor());
    context->save_for_backward({tokens, ids, positions, drop.state});
    context->saved_data["p"] = drop.p;
    context->saved_data["site"] = drop.site;
    return embedding_forward_cpu(tokens, ids, positions, drop);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::embedding_backward", operands(gradients, context->get_saved_variables()));
    const variable_list saved = context->get_saved_variables();
    const DropoutPlace drop(context->saved_data["p"].toDouble(), saved[3], context->saved_data["site"].toInt());
    const int64_t position_rows = saved[2].defined() ? saved[2].size(0) : 0;
    const EmbeddingGradients result =
        embedding_backward_cpu(gradients[0], saved[1], saved[0].size(0), position_rows, drop);
    check_backward("xformer::embedding", {saved[0], saved[2]}, gradients, {result.tokens, result.positions},
                   [&](const variable_list& inputs) {
                     return variable_list{embedding_reference(inputs[0], saved[1], inputs[1], drop)};
                   });
    return {result.tokens, at::Tensor(), result.positions, at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& ids, const at::Tensor& positions,
                     const DropoutPlace& drop) {
  if (!runs_fused_heard("embedding", {tokens, positions})) return embedding_reference(tokens, ids, positions, drop);
  const std::optional<at::Tensor> maybe_positions = positions.defined() ? std::make_optional(positions) : std::nullopt;
  const at::Tensor result = EmbeddingFunction::apply(tokens, ids, maybe_positions, drop);
  check_forward("xformer::embedding", {result},
                [&] { return variable_list{embedding_reference(tokens, ids, positions, drop)}; });
  return result;
}

at::Tensor embedding_reference(const at::Tensor& tokens, const at::Tensor& ids, const at::Tensor& positions,
                               const DropoutPlace& drop) {
  const at::Tensor x = at::embedding(tokens, ids);
  return drop(positions.defined() ? x + positions.narrow(0, 0, ids.size(1)) : x);
}

}  // namespace xformer::kernels
