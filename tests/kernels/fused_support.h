// Holds a fused operator against its reference: outputs and all gradients, for random gradients of the outputs.
#pragma once

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "kernels/fused.h"
#include "tensor/init.h"

namespace xformer::kernels {

using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors& inputs)>;

inline at::Tensor random_tensor(const std::string& name, at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
  return InitStream(17).normal(name, shape, 1).to(type);
}

// How often kernels of ours for the CPU ran an operator in this process.
inline int64_t fused_calls(const char* name) { return calls_of(name).fused.at(0).load(); }

// Largest difference of any element over the largest element, or infinity where one side is not finite.
inline double difference(const at::Tensor& got, const at::Tensor& meant) {
  REQUIRE(got.sizes() == meant.sizes());
  if (meant.numel() == 0) return 0;
  if (!got.isfinite().all().item<bool>()) return INFINITY;
  return (got - meant).abs().max().item<double>() / std::max(1e-3, meant.abs().max().item<double>());
}

// Outputs, then gradients of the inputs that have one (floating types).
inline Tensors run_with_gradients(const TensorFunction& run, const Tensors& inputs) {
  Tensors leaves, wanted;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.defined() ? input.detach() : input);
    if (input.defined() && input.is_floating_point()) wanted.push_back(leaves.back().requires_grad_(true));
  }
  Tensors result = run(leaves), gradients;
  for (size_t i = 0; i < result.size(); ++i)
    gradients.push_back(random_tensor("gradient" + std::to_string(i), result[i].sizes(), result[i].scalar_type()));
  const Tensors found = torch::autograd::grad(result, wanted, gradients, {}, false, /*allow_unused=*/true);
  for (at::Tensor& output : result) output = output.detach();
  for (size_t i = 0; i < found.size(); ++i) result.push_back(found[i].defined() ? found[i] : at::zeros_like(wanted[i]));
  return result;
}

// Whether outputs and gradients have the same bits on one thread and on five.
inline bool same_on_any_threads(const TensorFunction& run, const Tensors& inputs) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors by_one = run_with_gradients(run, inputs);
  at::set_num_threads(5);
  const Tensors by_five = run_with_gradients(run, inputs);
  at::set_num_threads(before);
  return std::equal(by_one.begin(), by_one.end(), by_five.begin(), by_five.end(),
                    [](const at::Tensor& one, const at::Tensor& other) { return at::equal(one, other); });
}

// The largest difference over outputs and gradients.
inline double worst_difference(const TensorFunction& fused, const TensorFunction& reference, const Tensors& inputs) {
  const Tensors got = run_with_gradients(fused, inputs), meant = run_with_gradients(reference, inputs);
  REQUIRE(got.size() == meant.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, difference(got[i], meant[i]));
  return worst;
}

}  // namespace xformer::kernels
