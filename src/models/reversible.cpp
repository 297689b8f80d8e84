#include "models/reversible.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "tensor/autocast.h"
#include "tensor/probe.h"

namespace xformer::models {

namespace {

using torch::autograd::variable_list;

struct Layers : torch::CustomClassHolder {
  std::vector<std::shared_ptr<PreNormBlock>> blocks;
  SequenceMask mask;
  c10::DeviceType device;
  std::optional<at::ScalarType> autocast;  // what forward ran under, for what runs again
};

at::Tensor mixed(PreNormBlock& block, const at::Tensor& x, const SequenceMask& mask) {
  attention::Carry carry;
  const at::Tensor result = block.mixed(x, mask, carry);
  XF_ASSERT(carry.empty(), "an attention that carries was not refused");
  return result;
}

// One branch again, with a graph: its value, and the gradients of its input and parameters for the gradient of its
// value. Those of the parameters are added to `sums`, in the order of `parameters`.
struct Branch {
  at::Tensor value, input_gradient;

  template <class Run>
  Branch(const Layers& stack, const Run& run, const at::Tensor& input, const at::Tensor& gradient,
         const variable_list& parameters, variable_list& sums) {
    const at::Tensor leaf = input.detach().requires_grad_(true);
    at::Tensor out;
    {
      const at::AutoGradMode with_graph(true);
      const AutocastScope autocast(stack.device, stack.autocast);
      out = run(leaf);
    }
    variable_list wanted{leaf};
    wanted.insert(wanted.end(), parameters.begin(), parameters.end());
    const variable_list found = torch::autograd::grad({out}, wanted, {gradient.to(out.scalar_type())},
                                                      /*retain_graph=*/false, /*create_graph=*/false,
                                                      /*allow_unused=*/true);
    value = out.detach();
    input_gradient = found[0];
    for (size_t i = 0; i < parameters.size(); ++i)
      if (found[i + 1].defined()) sums[i] = sums[i].defined() ? sums[i] + found[i + 1] : found[i + 1];
  }
};

// Parameters are inputs, so that their gradients go the ordinary way.
struct ReversibleFunction : torch::autograd::Function<ReversibleFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const c10::intrusive_ptr<Layers>& stack,
                            const at::Tensor& x, at::TensorList parameters) {
    at::Tensor first = x, second = x;
    for (size_t i = 0; i < stack->blocks.size(); ++i) {
      const ProbeScope scope("layer", static_cast<int64_t>(i));
      first = first + mixed(*stack->blocks[i], second, stack->mask);
      second = second + stack->blocks[i]->fed(first);
    }
    context->save_for_backward({first, second});
    context->saved_data["stack"] = c10::IValue::make_capsule(stack);
    context->saved_data["parameters"] = parameters.vec();  // leaves that nobody changes before the update
    return (first + second) / 2;
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const auto stack = c10::static_intrusive_pointer_cast<Layers>(context->saved_data["stack"].toCapsule());
    const variable_list parameters = context->saved_data["parameters"].toTensorVector();
    variable_list sums(parameters.size());
    const variable_list saved = context->get_saved_variables();
    at::Tensor first = saved[0], second = saved[1];
    at::Tensor first_gradient = gradients[0] / 2, second_gradient = first_gradient;
    for (auto block = stack->blocks.rbegin(); block != stack->blocks.rend(); ++block) {
      const Branch fed(
          *stack, [&](const at::Tensor& y) { return (*block)->fed(y); }, first, second_gradient, parameters, sums);
      second = second - fed.value;
      first_gradient = first_gradient + fed.input_gradient;
      const Branch mixer(
          *stack, [&](const at::Tensor& y) { return mixed(**block, y, stack->mask); }, second, first_gradient,
          parameters, sums);
      first = first - mixer.value;
      second_gradient = second_gradient + mixer.input_gradient;
    }
    variable_list result{at::Tensor(), first_gradient + second_gradient};
    result.insert(result.end(), sums.begin(), sums.end());
    return result;
  }
};

}  // namespace

at::Tensor run_reversible(const std::vector<std::shared_ptr<PreNormBlock>>& blocks,
                          const std::vector<at::Tensor>& parameters, const at::Tensor& x, const SequenceMask& mask) {
  auto stack = c10::make_intrusive<Layers>();
  stack->blocks = blocks;
  stack->mask = mask;
  stack->device = x.device().type();
  stack->autocast = autocast_type(stack->device);
  // What is taken away again must be what was added: sums of many layers stay in float.
  return ReversibleFunction::apply(stack, x.to(at::promote_types(x.scalar_type(), at::kFloat)),
                                   at::TensorList(parameters));
}

}  // namespace xformer::models
