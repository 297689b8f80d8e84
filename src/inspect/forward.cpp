#include "inspect/forward.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/names.h"
#include "tensor/probe.h"
#include "tensor/torch_errors.h"

namespace xformer::inspect {

namespace {

std::string shape_text(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

void check_captures(const std::vector<std::string>& patterns, const std::vector<std::string>& seen) {
  XF_CHECK(patterns.empty() || !seen.empty(), UserError,
           "--capture: nothing has a name here; a fused attention, for one, keeps its steps to itself");
  for (const std::string& pattern : patterns)
    XF_CHECK(
        std::any_of(seen.begin(), seen.end(), [&](const std::string& name) { return matches_pattern(pattern, name); }),
        UserError, "--capture: '{}' fits no tensor; there are {}", pattern, fmt::join(seen, ", "));
}

}  // namespace

at::Tensor gradient_of(const at::Tensor& tensor) {
  return tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
}

std::string ExpectedTensor::type_text() const {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i)
    text += (i == 0 ? "" : i + 1 < types.size() ? ", " : " or ") + safetensors_type(types[i]);
  return text;
}

std::string ExpectedTensor::shape_text() const { return inspect::shape_text(shape); }

TensorMap blank_inputs(const std::vector<ExpectedTensor>& expected) {
  TensorMap result;
  for (const ExpectedTensor& tensor : expected)
    if (tensor.needed && !tensor.parameter)
      result.emplace(tensor.name, at::zeros(tensor.shape, at::TensorOptions(tensor.types.front())));
  return result;
}

void check_inputs(const TensorMap& inputs, const std::vector<ExpectedTensor>& expected, const ForwardView& view,
                  const std::string& hint) {
  XF_CHECK(view.gradients || !inputs.contains(kGradOutput), UserError,
           "--input: {} is what --grad starts with, but --grad is not given", kGradOutput);
  std::vector<std::string> names, missing;
  bool parameters_missing = false;
  for (const ExpectedTensor& tensor : expected) {
    names.push_back(tensor.name);
    if (!tensor.needed || inputs.contains(tensor.name)) continue;
    missing.push_back(fmt::format("\n  {} {} {}", tensor.name, tensor.type_text(), tensor.shape_text()));
    parameters_missing |= tensor.parameter;
  }
  // A wrong name may be why another is missing: say both at once.
  std::string unknown;
  for (const auto& [name, tensor] : inputs)
    if (std::find(names.begin(), names.end(), name) == names.end())
      unknown += fmt::format("{}{}", unknown.empty() ? "" : "; ", unknown_name_message("tensor", name, names));
  XF_CHECK(unknown.empty(), UserError, "--input: {}", unknown);
  XF_CHECK(missing.empty(), UserError, "--input lacks{}{}", fmt::join(missing, ""),
           parameters_missing ? "\n" + hint : "");
  for (const ExpectedTensor& tensor : expected) {
    const auto found = inputs.find(tensor.name);
    if (found == inputs.end()) continue;
    const at::ScalarType type = found->second.scalar_type();
    XF_CHECK(std::find(tensor.types.begin(), tensor.types.end(), type) != tensor.types.end(), UserError,
             "--input: {}: expected type {}, found {}", tensor.name, tensor.type_text(), safetensors_type(type));
    XF_CHECK(found->second.sizes() == at::IntArrayRef(tensor.shape), UserError,
             "--input: {}: expected shape {}, found {}", tensor.name, tensor.shape_text(),
             shape_text(found->second.sizes()));
  }
}

std::vector<std::string> notes_on_numbers(const TensorMap& inputs) {
  std::vector<std::string> notes;
  for (const auto& [name, tensor] : inputs) {
    if (!tensor.is_floating_point()) continue;
    for (const auto& [what, odd] : {std::pair{"NaN", at::isnan(tensor)}, {"infinity", at::isinf(tensor)}}) {
      const at::Tensor places = at::nonzero(odd);  // [count, axes]
      if (places.size(0) == 0) continue;
      std::vector<int64_t> first;
      for (int64_t axis = 0; axis < places.size(1); ++axis) first.push_back(places[0][axis].item<int64_t>());
      notes.push_back(fmt::format("--input: {}: {} in {} of {} numbers, first at {}; what depends on them is no number",
                                  name, what, places.size(0), tensor.numel(), shape_text(first)));
    }
  }
  return notes;
}

ForwardResult run_forward(const ForwardPass& pass, const ForwardView& view) {
  const at::AutoGradMode grad_mode(view.gradients);
  ForwardResult result;
  const auto put = [&](const std::string& name, const at::Tensor& tensor) {
    XF_ASSERT(std::none_of(result.tensors.begin(), result.tensors.end(),
                           [&](const auto& entry) { return entry.first == name; }),
              "two results are called {}", name);
    result.tensors.emplace_back(name, tensor.detach());
  };
  try {
    if (view.gradients)
      for (const auto& [name, tensor] : pass.leaves) tensor.set_requires_grad(true);
    const ProbeRecorder recorder([&](const std::string& name) {
      return std::any_of(view.captures.begin(), view.captures.end(),
                         [&](const std::string& pattern) { return matches_pattern(pattern, name); });
    });
    const at::Tensor output = pass.run();
    check_captures(view.captures, recorder.seen());
    put(pass.result_name, output);
    for (const auto& [name, tensor] : recorder.kept()) {
      result.captured.push_back(name);
      if (name != pass.result_name) put(name, tensor);
    }
    at::Tensor objective;
    if (pass.loss) put("loss", objective = pass.loss(output));
    if (!view.gradients) return result;
    if (!objective.defined()) objective = pass.grad_output.defined() ? (output * pass.grad_output).sum() : output.sum();
    objective.backward();
    for (const auto& [name, tensor] : pass.leaves) put("grad." + name, gradient_of(tensor));
    for (const auto& [name, tensor] : recorder.kept())
      if (tensor.is_floating_point()) put("grad." + name, gradient_of(tensor));
    return result;
  } catch (...) {
    rethrow_translated();
  }
}

}  // namespace xformer::inspect
