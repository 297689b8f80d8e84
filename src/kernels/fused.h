// What all fused operators share: when they run, what they keep for the backward pass, and how --kernels=check holds
// them against their reference.
//
// A fused operator is three things: `x_reference`, composed of plain tensor operations, which defines its meaning and
// its gradient on any device and in any type; kernels of both passes, operators of LibTorch's dispatcher with one
// for float and double on the CPU (operator.h); and the public function `x`, which takes them where it can. The last is
// run_fused() of a struct that is one call and in the end what its backward pass needs:
//
//   struct Call {
//     static constexpr const char* kName = "x";
//     static inline const Operator<x_forward_cpu> kForward{"x_forward"};
//     static inline const Operator<x_backward_cpu> kBackward{"x_backward"};
//     at::Tensor a, kept; ...                         // operands, options, what the forward pass leaves (fields.h)
//     variable_list inputs() const;                   // those that may have a gradient, undefined or not
//     variable_list forward();                        // the outputs; clears what is not kept (an input of which
//                                                     // the gradients need nothing but its shape, say)
//     variable_list backward(const variable_list& gradients, bool first_wanted) const;  // one for each input
//     variable_list reference(const variable_list& inputs) const;
//   };
//
// Marks may be added: kReports, for a reference that shows tensors inside (tensor/probe.h), so that it runs while
// somebody looks; kPartialGradients, for a backward pass that takes undefined gradients of outputs nobody used;
// kTakesBf16, for kernels that read and write activations in bf16 (kernels/cpu/stored.h); and
// `static bool takes_half(size_t input)`, the inputs that may be bf16 or fp16 on other devices than the CPU, as
// products under autocast leave them, where the others are float; with it may come `at::ScalarType kept_type() const`,
// that of what the forward pass leaves, and kRoundsProducts, where under autocast float outputs are of products of such
// numbers. Where the first may be, or inputs are of several types, and the kernel does not run, the reference is in
// float, but under autocast by LibTorch's rules.
//
// Under autocast to bf16 on a CPU, activations are bf16 between operators; parameters stay float, and so do statistics
// of rows: run_fused() brings the inputs to these types, all but those that `static bool is_parameter(size_t input)`
// names, and the outputs, all but those that `static bool is_statistic(size_t output)` does. A call without the mark
// computes in float between conversions. So does, where autocast is off, one whose kernels cannot run; under autocast
// its reference runs by LibTorch's rules, as it does with other policies and on other devices.
#pragma once

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <optional>

#include "kernels/operator.h"
#include "kernels/policy.h"
#include "tensor/autocast.h"
#include "tensor/probe.h"

namespace xformer::kernels {

using torch::autograd::variable_list;

// Calls of one operator since the last reset_backends() (policy.h).
struct CallCounts {
  std::atomic<int64_t> reference{0}, bf16{0};  // the second: by kernels of the CPU, activations in bf16
  std::array<std::atomic<int64_t>, static_cast<size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)> fused{};

  void count(const at::Tensor& operand, bool by_kernel) {
    (by_kernel ? fused.at(static_cast<size_t>(operand.device().type())) : reference)
        .fetch_add(1, std::memory_order_relaxed);
  }
  void count_bf16() { bf16.fetch_add(1, std::memory_order_relaxed); }
};
// Those of the operator `name`, which stay where they are.
[[nodiscard]] CallCounts& calls_of(const std::string& name);

// Whether the policy lets fused operators run, and the defined ones among the tensors are on one device and of one type
// that kernels take, float or double.
[[nodiscard]] bool fit_kernels(at::TensorList tensors);

// Whether activations are bf16 for operators on these tensors, undefined or not: one of them is bf16 or autocast says
// so, all of them are on a CPU and bf16 or float, the policy lets fused operators run, and nobody captures tensors.
[[nodiscard]] bool stores_bf16(at::TensorList tensors);

// Whether the defined ones among the tensors are on one device and those that take_half(place) names float, bf16 or
// fp16, the others float, as the policy lets fused operators run.
[[nodiscard]] bool fit_with_half(const variable_list& tensors, bool (*takes_half)(size_t place));

// What a difference in bf16 may be, of the largest element: four roundings of 2^-8 each.
inline constexpr double kBf16Tolerance = 1.0 / 64;
// Four roundings of 2^-11 each in a product on either side.
inline constexpr double kTf32Tolerance = 1.0 / 256;
// What a difference may be of what is stored in 16 bits, or of products of such numbers; 0 of other types.
[[nodiscard]] double tolerance_of(at::ScalarType type);
inline constexpr double kOutputTolerance = 1e-4, kGradientTolerance = 1e-3;

// Under --kernels=check: InternalError unless `got` is what `reference` makes of the same arguments, within `tolerance`
// of float (of the largest element), 1e-9 of double and kBf16Tolerance of bf16. What the reference leaves undefined is
// not looked at.
void check_forward(const char* name, const variable_list& got, const std::function<variable_list()>& reference,
                   double tolerance = kOutputTolerance);

// The same for a backward pass, under any policy: `inputs` are the operator's tensors, `got` their gradients
// (undefined: none is asked for), `gradients` those of the outputs; the reference is called with inputs that require
// gradients where got is defined, in float where they are bf16.
void check_backward(const char* name, const variable_list& inputs, const variable_list& gradients,
                    const variable_list& got,
                    const std::function<variable_list(const variable_list& inputs)>& reference,
                    double tolerance = kGradientTolerance);
// What gradients may be apart where the forward pass left numbers of this type, which the reference does not round.
[[nodiscard]] double gradient_tolerance(at::ScalarType kept);

// Whether the defined ones among the tensors are of one type.
[[nodiscard]] bool of_one_type(const variable_list& tensors);

// bf16 and fp16 tensors in float, the others as they are.
[[nodiscard]] at::Tensor in_float(const at::Tensor& tensor);
[[nodiscard]] variable_list in_float(const variable_list& tensors);

// tensor.to(type), at no cost where it is of this type.
[[nodiscard]] inline at::Tensor in_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.scalar_type() == type ? tensor : tensor.to(type);
}

// A struct between the passes: its tensors as LibTorch saves them, so that changed ones are refused and an output holds
// no cycle, the rest as it is.
template <class State>
struct Kept : torch::CustomClassHolder {
  State rest;

  static void save(torch::autograd::AutogradContext* context, State state) {
    variable_list tensors;
    for_tensors(state, [&](at::Tensor& one) { tensors.push_back(std::exchange(one, {})); });
    context->save_for_backward(std::move(tensors));
    auto kept = c10::make_intrusive<Kept>();
    kept->rest = std::move(state);
    context->saved_data["state"] = c10::IValue::make_capsule(std::move(kept));
  }

  [[nodiscard]] static State load(torch::autograd::AutogradContext* context) {
    State state = static_cast<const Kept&>(*context->saved_data["state"].toCapsule()).rest;
    const variable_list tensors = context->get_saved_variables();
    auto next = tensors.begin();
    for_tensors(state, [&](at::Tensor& one) { one = *next++; });
    return state;
  }
};

template <class Call>
struct FusedFunction : torch::autograd::Function<FusedFunction<Call>> {
  struct State {
    Call call;
    std::vector<int64_t> given;  // places of the inputs that are defined
  };

  static variable_list forward(torch::autograd::AutogradContext* context, at::TensorList /*inputs*/, State state) {
    variable_list outputs = state.call.forward();
    context->set_materialize_grads(!requires { Call::kPartialGradients; });
    Kept<State>::save(context, std::move(state));
    return outputs;
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gradients) {
    const State state = Kept<State>::load(context);
    variable_list result(state.given.size() + 1);  // nothing for the state
    if (std::none_of(gradients.begin(), gradients.end(), [](const at::Tensor& one) { return one.defined(); }))
      return result;
    const variable_list found = state.call.backward(gradients, context->needs_input_grad(0));
    if (policy() == Policy::kCheck) {
      double tolerance = kGradientTolerance;
      if constexpr (requires { state.call.kept_type(); })
        tolerance = std::max(tolerance, gradient_tolerance(state.call.kept_type()));
      variable_list inputs = state.call.inputs();
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!inputs[i].defined() && found[i].defined()) inputs[i] = at::zeros_like(found[i]);
      check_backward(
          Call::kName, inputs, gradients, found,
          [&](const variable_list& leaves) { return state.call.reference(leaves); }, tolerance);
    }
    for (size_t i = 0; i < state.given.size(); ++i) result[i] = found[static_cast<size_t>(state.given[i])];
    return result;
  }
};

template <class Call>
[[nodiscard]] constexpr bool is_parameter(size_t input) {
  if constexpr (requires { Call::is_parameter(input); }) return Call::is_parameter(input);
  else return false;
}

template <class Call>
[[nodiscard]] constexpr bool is_statistic(size_t output) {
  if constexpr (requires { Call::is_statistic(output); }) return Call::is_statistic(output);
  else return false;
}

// The type of activations in which a call with these inputs would run fused; none: it would not.
template <class Call>
[[nodiscard]] std::optional<at::ScalarType> fused_type(const variable_list& inputs) {
  if constexpr (requires { Call::kReports; })
    if (probe_recorder != nullptr) return std::nullopt;
  if constexpr (requires { Call::kBackward; })
    if (!Call::kBackward.runs_on(inputs[0])) return std::nullopt;
  if (!Call::kForward.runs_on(inputs[0])) return std::nullopt;
  if (!stores_bf16(inputs)) {
    if constexpr (requires { Call::takes_half(0); })
      if (!inputs[0].is_cpu() && fit_with_half(inputs, Call::takes_half)) return inputs[0].scalar_type();
    if (!fit_kernels(inputs)) return std::nullopt;
    return std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor& one) { return one.defined(); })
        ->scalar_type();
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_parameter<Call>(i) && inputs[i].defined() && inputs[i].scalar_type() != at::kFloat) return std::nullopt;
  if constexpr (requires { Call::kTakesBf16; }) return at::kBFloat16;
  else return at::kFloat;
}

// The call with its activations in this type.
template <class Call>
[[nodiscard]] Call with_activations(Call call, at::ScalarType type) {
  const variable_list inputs = call.inputs();
  variable_list made(inputs.size());  // one tensor in several places is converted once
  for_tensors(call, [&](at::Tensor& one) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (one.defined() && one.is_same(inputs[i]) && !is_parameter<Call>(i)) {
        if (!made[i].defined()) made[i] = in_type(one, type);
        one = made[i];
        return;
      }
  });
  return call;
}

template <class Call>
variable_list run_kernels(const Call& call) {
  const variable_list inputs = call.inputs();
  variable_list defined;
  typename FusedFunction<Call>::State state{call, {}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    state.given.push_back(static_cast<int64_t>(i));
    defined.push_back(inputs[i]);
  }
  variable_list outputs = FusedFunction<Call>::apply(at::TensorList(defined), std::move(state));
  double tolerance = kOutputTolerance;
  if constexpr (requires { Call::kRoundsProducts; })
    if (const auto type = autocast_type(inputs[0].device().type()))
      tolerance = std::max(tolerance, tolerance_of(*type));
  check_forward(
      Call::kName, outputs, [&] { return call.reference(in_float(inputs)); }, tolerance);
  return outputs;
}

// The rows that a call of an operator that leaves others out has to make (needed.h): all, undefined, where no kernel
// runs.
template <class Call>
[[nodiscard]] at::Tensor needed_of(const Call& call, const at::Tensor& needed) {
  if (!needed.defined()) return needed;
  return fused_type<Call>(call.inputs()) ? needed : at::Tensor();
}

// The call's outputs, fused where that is possible.
template <class Call>
variable_list run_fused(const Call& call, bool possible = true) {
  static CallCounts& counts = calls_of(Call::kName);
  const variable_list inputs = call.inputs();
  constexpr at::ScalarType kNone = at::ScalarType::Undefined;
  const at::ScalarType type = possible ? fused_type<Call>(inputs).value_or(kNone) : kNone;
  const bool bf16 = stores_bf16(inputs), fused = type != kNone;
  if (bf16 && type == at::kBFloat16) counts.count_bf16();
  else counts.count(inputs[0], fused);
  if (!bf16 && fused) return run_kernels(call);
  if constexpr (requires { Call::takes_half(0); })
    if (!bf16 && !autocast_type(inputs[0].device().type()) && (Call::takes_half(0) || !of_one_type(inputs)))
      return call.reference(in_float(inputs));
  if (!bf16 || (!fused && autocast_type(at::kCPU))) return call.reference(inputs);
  const AutocastScope full(at::kCPU, std::nullopt);
  variable_list outputs = fused ? run_kernels(with_activations(call, type)) : call.reference(in_float(inputs));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].defined() && !is_statistic<Call>(i)) outputs[i] = in_type(outputs[i], at::kBFloat16);
  return outputs;
}

}  // namespace xformer::kernels
