// Linear maps of a norm they make themselves as a device computes them, walked on the CPU, against the norm and
// at::linear in double precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/linear/normed_device.h"
#include "kernels/needed.h"
#include "kernels/operator.h"
#include "poisoned_memory.h"
#include "tensor/autocast.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::normed_linear_device_test {

namespace {

struct NormedMaps {
  int64_t rows = 70, in = 24;
  std::vector<int64_t> outs{16, 9};
  bool bias = true, tf32 = false;
  bool past = true;                    // x has another use
  int64_t shift = 0;                   // elements by which x and the norm's weights begin behind an aligned place
  at::ScalarType stored = at::kFloat;  // of results and their gradients
  at::Tensor needed = {};              // [rows]
  int unused = -1;                     // the map whose result has no gradient
};

at::Tensor shifted(const std::string& name, at::IntArrayRef shape, int64_t shift) {
  const int64_t count = c10::multiply_integers(shape);
  return random_tensor(name, {count + shift}, at::kFloat).narrow(0, shift, count).view(shape);
}

struct NormedTensors {
  at::Tensor x, past;
  NormWeights norm;
  Tensors weights, biases, gradients;

  explicit NormedTensors(const NormedMaps& one)
      : x(shifted("x", {one.rows, one.in}, one.shift)),
        norm{shifted("norm weight", {one.in}, one.shift), shifted("norm bias", {one.in}, one.shift), 1e-3} {
    x.mul_(2).add_(1);
    if (one.past) past = random_tensor("past", {one.rows, one.in}, at::kFloat);
    for (size_t i = 0; i < one.outs.size(); ++i) {
      const std::string place = std::to_string(i);
      weights.push_back(random_tensor("weight" + place, {one.outs[i], one.in}, at::kFloat));
      if (one.bias) biases.push_back(random_tensor("bias" + place, {one.outs[i]}, at::kFloat));
      gradients.push_back(static_cast<int>(i) == one.unused
                              ? at::Tensor()
                              : random_tensor("gradient" + place, {one.rows, one.outs[i]}, at::kFloat).to(one.stored));
    }
  }
};

// Results, then gradients of x, the norm's weight and bias, the maps' weights and biases.
template <class Walk>
Tensors walked_maps(const NormedMaps& one, const NormedTensors& given, const Walk& walked) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const auto launch = [&](bool backward) {
    return [&walked, backward](const LinearArguments& a) { run_linear<WalkedTypes>(a, backward, walked); };
  };
  const NormedLinearForward made = [&] {
    const AutocastScope autocast(at::kCPU, one.stored == at::kFloat ? std::nullopt : std::optional(one.stored));
    return normed_linear_forward_device(given.x, given.weights, given.biases, given.norm, one.needed, launch(false));
  }();
  const NormedLinearGradients found = normed_linear_backward_device(
      given.gradients, given.past, given.x, given.weights, given.biases, given.norm, made.mean, made.rstd, one.needed,
      launch(true), [&](const ResidualNormBackwardArguments& a) { run_row_backward(a, walked); },
      [&](const WeightGradientArguments& a) { run_weight_gradients<WalkedTypes>(a, walked); });
  at::globalContext().setAllowTF32CuBLAS(false);
  Tensors result = made.results;
  for (const at::Tensor& each : result) CHECK(each.scalar_type() == one.stored);
  for (const at::Tensor& each : {found.maps.x, found.weight, found.bias}) {
    CHECK(each.scalar_type() == at::kFloat);
    result.push_back(each);
  }
  for (const auto& some : {found.maps.weights, found.maps.biases})
    for (const at::Tensor& each : some)
      if (each.defined()) result.push_back(each);
  return result;
}

// Of factors as products take them: in the type of what is stored.
Tensors defined_maps(const NormedMaps& one, const NormedTensors& given) {
  const auto leaf = [](const at::Tensor& x) { return x.to(at::kDouble).detach().requires_grad_(true); };
  const auto rounded = [&](const at::Tensor& x) { return x + (x.to(one.stored).to(at::kDouble) - x).detach(); };
  const at::Tensor x = leaf(given.x), norm_weight = leaf(given.norm.weight), norm_bias = leaf(given.norm.bias);
  const at::Tensor normed = rounded(at::layer_norm(x, {one.in}, norm_weight, norm_bias, given.norm.epsilon));
  Tensors result, wanted{x, norm_weight, norm_bias}, outputs, slopes, biases;
  for (size_t i = 0; i < given.weights.size(); ++i) {
    const at::Tensor weight = leaf(given.weights[i].to(one.stored));
    biases.push_back(one.bias ? leaf(given.biases[i]) : at::Tensor());
    const at::Tensor output = needed_alone(at::linear(normed, weight, biases[i]), one.needed);
    result.push_back(output.detach());
    if (!given.gradients[i].defined()) continue;
    outputs.push_back(output), slopes.push_back(given.gradients[i].to(at::kDouble));
    wanted.push_back(weight);
  }
  for (size_t i = 0; i < biases.size(); ++i)
    if (one.bias && given.gradients[i].defined()) wanted.push_back(biases[i]);
  if (one.past) outputs.push_back(x + 0), slopes.push_back(given.past.to(at::kDouble));
  const Tensors found = torch::autograd::grad(outputs, wanted, slopes);
  result.insert(result.end(), found.begin(), found.end());
  return result;
}

double worst_map(const NormedMaps& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  const NormedTensors given(one);
  const Tensors meant = defined_maps(one, given);
  lose_others(given.x, one.needed);
  for (const at::Tensor& gradient : given.gradients) lose_others(gradient, one.needed);
  return worst_walked([&](WalkOrder order) { return walked_maps(one, given, walking(order)); }, meant, both_orders,
                      first);
}

constexpr double kLikeFloat = 5e-6, kLikeTf32 = 5e-3;

}  // namespace

TEST_CASE(
    "linear maps of their own norm on a device: every number of rows from 1 to 130, every width to the widest, near "
    "tiles' borders in two orders") {
  const PoisonedMemory poisoned;
  for (int64_t size = 1; size <= 130; ++size) {
    CAPTURE(size);
    const bool near = near_border(size);
    const WalkOrder first = order_at(size);
    CHECK(worst_map({.rows = size}, near, first) < kLikeFloat);
    // The norm of rows of one number is its bias, and gradients by way of it are nothing.
    if (size > 1 && size <= kWidestNormTile) CHECK(worst_map({.rows = 20, .in = size}, near, first) < 2 * kLikeFloat);
  }
}

TEST_CASE("linear maps of their own norm on a device: shapes, and uses of x and of the maps, in two orders") {
  const PoisonedMemory poisoned;
  CHECK(worst_map({.rows = 130, .in = 64, .outs = {64, 64, 64}}, true) < kLikeFloat);
  CHECK(worst_map({.rows = 100, .in = 128, .outs = {130, 1, 70, 65}}, true) < kLikeFloat);
  CHECK(worst_map({.rows = 100, .in = 72, .outs = {64}, .bias = false}, true) < kLikeFloat);
  CHECK(worst_map({.in = 64, .past = false}, true) < kLikeFloat);
  CHECK(worst_map({.in = 64, .outs = {8, 16, 24}, .unused = 1}, true) < kLikeFloat);
  CHECK(worst_map({.in = 16, .outs = {16, 8}, .shift = 1}, true) < kLikeFloat);
  CHECK(worst_map({.rows = 64 * 140 + 1, .in = 8, .outs = {130, 70}}) < 2 * kLikeFloat);
  CHECK(worst_map({.in = 64, .outs = {64, 64}, .tf32 = true}, true) < kLikeTf32);
  CHECK(worst_map({.in = 128, .outs = {64}, .tf32 = true}, true) < kLikeTf32);
  CHECK_THROWS_AS(worst_map({.in = kWidestNormTile + 1}), c10::Error);
}

TEST_CASE("linear maps of their own norm on a device, in 16 bits") {
  const PoisonedMemory poisoned;
  for (const at::ScalarType half : {at::kHalf, at::kBFloat16}) {
    CAPTURE(half);
    const double bound = half == at::kHalf ? 2e-3 : 1.2e-2;  // a norm's last bit may round to the other side
    for (const int64_t rows : {1, 33, 64, 130}) CHECK(worst_map({.rows = rows, .stored = half}, true) < bound);
    for (const int64_t in : {8, 20, 64, 65, 128})
      CHECK(worst_map({.in = in, .outs = {64, 3}, .stored = half}, true) < bound);
    // Near tiles' borders one type has so many rows, the other the width.
    for (int64_t size = 1; size <= 130; ++size) {
      if (!near_border(size)) continue;
      CAPTURE(size);
      const bool of_rows = (size % 2 == 0) == (half == at::kHalf);
      if (of_rows) CHECK(worst_map({.rows = size, .stored = half}, true) < bound);
      else if (size > 1 && size <= kWidestNormTile)
        CHECK(worst_map({.rows = 20, .in = size, .stored = half}, true) < bound);
    }
    CHECK(worst_map({.in = 16, .shift = 1, .stored = half}, true) < bound);
  }
}

TEST_CASE(
    "linear maps of their own norm on a device: rows that nobody needs may be anything, and go past it as they are") {
  const PoisonedMemory poisoned;
  for (const at::Tensor& needed : needed_cases(200)) {
    CAPTURE(needed);
    CHECK(worst_map({.rows = 200, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_map({.rows = 200, .in = 70, .outs = {130, 9}, .past = false, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_map({.rows = 200, .in = 64, .stored = at::kBFloat16, .needed = needed}, true) < 1.2e-2);
  }
}

namespace {

int counted_maps = 0, counted_norms = 0, counted_weights = 0;

NormedLinearForward counted_forward(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                    const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                    const at::Tensor& needed) {
  return normed_linear_forward_device(x, weights, biases, norm, needed, [](const LinearArguments&) { ++counted_maps; });
}
NormedLinearGradients counted_backward(const std::vector<at::Tensor>& gradients, const at::Tensor& past,
                                       const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                       const std::vector<at::Tensor>& biases, const NormWeights& norm,
                                       const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& needed) {
  return normed_linear_backward_device(
      gradients, past, x, weights, biases, norm, mean, rstd, needed, [](const LinearArguments&) { ++counted_maps; },
      [](const ResidualNormBackwardArguments&) { ++counted_norms; },
      [](const WeightGradientArguments&) { ++counted_weights; });
}

ResidualNormForward counted_norm_forward(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                                         const NormWeights& norm, const at::Tensor& needed) {
  return residual_norm_forward_device(x, branch, drop, norm, needed, [](const ResidualNormForwardArguments&) {});
}
ResidualNormGradients counted_norm_backward(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                            const ResidualNormForward& forward, bool has_branch,
                                            const DropoutPlace& drop, const at::Tensor& weight,
                                            const at::Tensor& needed) {
  return residual_norm_backward_device(sum_gradient, normed_gradient, forward, has_branch, drop, weight, needed,
                                       [](const ResidualNormBackwardArguments&) { ++counted_norms; });
}

}  // namespace

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE(
    "a device with kernels of linear maps and their norm has no launch of the norm forwards, and three backwards") {
  counted_maps = counted_norms = counted_weights = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("normed_linear_forward", dispatched<counted_forward>);
  library.impl("normed_linear_backward", dispatched<counted_backward>);
  library.impl("residual_norm_forward", dispatched<counted_norm_forward>);
  library.impl("residual_norm_backward", dispatched<counted_norm_backward>);
  const auto run = [](at::ScalarType type, int64_t in, size_t count) {
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const at::Tensor x = leaf({4, 10, in});
    NormedRows rows{x, x, {leaf({in}), leaf({in})}};
    const LinearMap map{leaf({32, in}), leaf({32})};
    const OpCounter counter;
    const Tensors results = linear(rows, std::vector<LinearMap>(count, map));
    CHECK(results.back().sizes() == at::IntArrayRef({4, 10, 32}));
    Tensors slopes;
    for (const at::Tensor& result : results) slopes.push_back(at::ones_like(result));
    static_cast<void>(torch::autograd::grad(results, {x, map.weight, rows.norm.weight}, slopes));
    CHECK(counter.counts().flops == 3 * static_cast<int64_t>(count) * 2 * 40 * in * 32);
    return std::vector{std::exchange(counted_maps, 0), std::exchange(counted_norms, 0),
                       std::exchange(counted_weights, 0)};
  };
  CHECK(run(at::kFloat, 64, 3) == std::vector{2, 1, 1});
  CHECK(run(at::kFloat, kWidestNormTile, 1) == std::vector{2, 1, 1});
  // What such a launch does not take is a norm, and maps by an operator that this device lacks.
  for (const auto& [type, in, count] : {std::tuple{at::kDouble, int64_t{64}, size_t{3}},
                                        {at::kFloat, kWidestNormTile + 1, size_t{3}},
                                        {at::kFloat, int64_t{64}, size_t{kMostMaps + 1}}})
    CHECK(run(type, in, count) == std::vector{0, 1, 0});
}

}  // namespace xformer::kernels::normed_linear_device_test
