#include "kernels/linear/linear.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/linear/cpu.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

constexpr int64_t kMostWeights = int64_t{1} << 16;  // of one map; of larger ones LibTorch's products lose nothing

std::vector<LinearMap> maps_of(at::TensorList weights, at::TensorList biases) {
  std::vector<LinearMap> maps;
  for (size_t i = 0; i < weights.size(); ++i) maps.push_back({weights[i], biases.empty() ? at::Tensor() : biases[i]});
  return maps;
}

variable_list reference(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  variable_list results;
  for (const LinearMap& map : maps) results.push_back(at::linear(x, map.weight, map.bias));
  return results;
}

// Input, then weights, then biases.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights,
                               at::TensorList biases) {
    RECORD_FUNCTION("xformer::linear", operands(x, weights, biases));
    context->set_materialize_grads(false);
    variable_list saved{x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    saved.insert(saved.end(), biases.begin(), biases.end());
    context->save_for_backward(saved);
    context->saved_data["maps"] = static_cast<int64_t>(weights.size());
    return linear_forward_cpu(x, maps_of(weights, biases));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::linear_backward", operands(gradients, context->get_saved_variables()));
    const variable_list saved = context->get_saved_variables();
    const auto count = static_cast<size_t>(context->saved_data["maps"].toInt());
    variable_list result(saved.size());
    if (std::none_of(gradients.begin(), gradients.end(), [](const at::Tensor& one) { return one.defined(); }))
      return result;
    const auto maps_in = [count](const variable_list& all) {
      const at::TensorList list(all);
      return maps_of(list.slice(1, count), list.slice(1 + count));
    };
    const LinearGradients found =
        linear_backward_cpu(gradients, saved[0], maps_in(saved), context->needs_input_grad(0));
    result[0] = found.x;
    for (size_t i = 0; i < count; ++i) {
      result[1 + i] = found.maps[i].weight;
      if (saved.size() > 1 + count) result[1 + count + i] = found.maps[i].bias;
    }
    check_backward("xformer::linear", saved, gradients, result,
                   [&](const variable_list& inputs) { return reference(inputs[0], maps_in(inputs)); });
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> linear(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  variable_list weights, biases;
  bool fused = x.dim() > 0 && x.numel() > 0 && !at::autocast::is_autocast_enabled(x.device().type());
  for (const LinearMap& map : maps) {
    weights.push_back(map.weight);
    if (map.bias.defined()) biases.push_back(map.bias);
    fused = fused && map.weight.numel() > 0 && map.weight.numel() <= kMostWeights &&
            runs_fused_heard("linear", {x, map.weight, map.bias});
  }
  XF_ASSERT(biases.empty() || biases.size() == weights.size(), "of maps taken together all have a bias or none");
  if (!fused) return reference(x, maps);
  const variable_list results = LinearFunction::apply(x, at::TensorList(weights), at::TensorList(biases));
  check_forward("xformer::linear", results, [&] { return reference(x, maps); });
  return results;
}

at::Tensor linear(const at::Tensor& x, const LinearMap& map) { return linear(x, std::vector<LinearMap>{map}).front(); }

}  // namespace xformer::kernels
