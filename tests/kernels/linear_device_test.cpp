// Linear maps as a device computes them, walked on the CPU, against at::linear in double precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/device/occupancy.h"
#include "kernels/linear/device.h"
#include "kernels/needed.h"
#include "kernels/operator.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::linear_device_test {

namespace {

struct WalkedMaps {
  int64_t rows = 70, in = 24;
  std::vector<int64_t> outs{16, 9};
  bool bias = true, tf32 = false, x_wanted = true;
  int unused = -1;    // the map whose result has no gradient
  int64_t shift = 0;  // elements by which x and the weights begin behind an aligned place
  at::ScalarType x = at::kFloat, stored = at::kFloat;  // the second: of results and their gradients
  at::Tensor needed = {};                              // [rows]
  bool float_slopes = false;                           // gradients of results are float all the same
};

at::Tensor shifted_floats(const std::string& name, int64_t rows, int64_t width, int64_t shift) {
  return random_tensor(name, {rows * width + shift}, at::kFloat).narrow(0, shift, rows * width).view({rows, width});
}

struct MapTensors {
  at::Tensor x;
  std::vector<at::Tensor> weights, biases, gradients;

  explicit MapTensors(const WalkedMaps& one) : x(shifted_floats("x", one.rows, one.in, one.shift).to(one.x)) {
    for (size_t i = 0; i < one.outs.size(); ++i) {
      const std::string place = std::to_string(i);
      weights.push_back(shifted_floats("weight" + place, one.outs[i], one.in, one.shift));
      if (one.bias) biases.push_back(random_tensor("bias" + place, {one.outs[i]}, at::kFloat));
      gradients.push_back(static_cast<int>(i) == one.unused
                              ? at::Tensor()
                              : random_tensor("gradient" + place, {one.rows, one.outs[i]}, at::kFloat)
                                    .to(one.float_slopes ? at::kFloat : one.stored));
    }
  }
  void lose(const at::Tensor& needed) const {
    lose_others(x, needed);
    for (const at::Tensor& gradient : gradients) lose_others(gradient, needed);
  }
};

// Results, then gradients of x, weights and biases, undefined ones left out.
template <class Walk>
Tensors walked_maps(const WalkedMaps& one, const MapTensors& given, const Walk& walked) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const auto launch = [&](bool backward) {
    return [&walked, backward](const LinearArguments& a) { run_linear<WalkedTypes>(a, backward, walked); };
  };
  Tensors result = [&] {
    const AutocastScope autocast(at::kCPU, one.stored == at::kFloat ? std::nullopt : std::optional(one.stored));
    return linear_forward_device(given.x, given.weights, given.biases, one.needed, launch(false));
  }();
  for (const at::Tensor& made : result) CHECK(made.scalar_type() == one.stored);
  const LinearGradients found = linear_backward_device(
      given.gradients, given.x, given.weights, given.biases, one.needed, one.x_wanted, launch(true),
      [&](const WeightGradientArguments& a) { run_weight_gradients<WalkedTypes>(a, walked); });
  if (one.x_wanted) CHECK(found.x.scalar_type() == one.x);
  for (const at::Tensor& gradient : tensors_of(found))
    if (gradient.defined()) result.push_back(gradient);
  at::globalContext().setAllowTF32CuBLAS(false);
  return result;
}
Tensors walked_maps(const WalkedMaps& one, const MapTensors& given, WalkOrder order) {
  return walked_maps(one, given, walking(order));
}

// Of factors as products take them: in the type of what is stored.
Tensors defined_maps(const WalkedMaps& one, const MapTensors& given) {
  const auto leaf = [](const at::Tensor& x) { return x.to(at::kDouble).detach().requires_grad_(true); };
  const auto factor = [&](const at::Tensor& x) { return leaf(x.to(one.stored)); };
  Tensors result, wanted, outputs, slopes;
  const at::Tensor x = factor(given.x);
  if (one.x_wanted) wanted.push_back(x);
  Tensors weights, biases;
  for (size_t i = 0; i < given.weights.size(); ++i) {
    weights.push_back(factor(given.weights[i]));
    biases.push_back(one.bias ? leaf(given.biases[i]) : at::Tensor());
    const at::Tensor output = needed_alone(at::linear(x, weights[i], biases[i]), one.needed);
    result.push_back(output.detach());
    if (!given.gradients[i].defined()) continue;
    outputs.push_back(output), slopes.push_back(given.gradients[i].to(one.stored).to(at::kDouble));
    wanted.push_back(weights[i]);
  }
  for (size_t i = 0; i < biases.size(); ++i)
    if (one.bias && given.gradients[i].defined()) wanted.push_back(biases[i]);
  const Tensors found = torch::autograd::grad(outputs, wanted, slopes);
  result.insert(result.end(), found.begin(), found.end());
  return result;
}

double worst_map(const WalkedMaps& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  const MapTensors given(one);
  const Tensors meant = defined_maps(one, given);
  given.lose(one.needed);
  return worst_walked([&](WalkOrder order) { return walked_maps(one, given, order); }, meant, both_orders, first);
}

constexpr double kLikeFloat = 2e-6, kLikeTf32 = 5e-3;

int counted_maps = 0, counted_weights = 0, told_of_rows = 0;

std::vector<at::Tensor> counted_linear_forward(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                               const std::vector<at::Tensor>& biases, const at::Tensor& needed) {
  told_of_rows += needed.defined() ? 1 : 0;
  return linear_forward_device(x, weights, biases, needed, [](const LinearArguments&) { ++counted_maps; });
}

LinearGradients counted_linear_backward(const std::vector<at::Tensor>& gradients, const at::Tensor& x,
                                        const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                        const at::Tensor& needed, bool x_wanted) {
  told_of_rows += needed.defined() ? 1 : 0;
  return linear_backward_device(
      gradients, x, weights, biases, needed, x_wanted, [](const LinearArguments&) { ++counted_maps; },
      [](const WeightGradientArguments&) { ++counted_weights; });
}

// Every row and every column of a map has its block, in both passes and in the gradients of so many maps' weights.
constexpr bool maps_fit(int64_t rows, int64_t in, int64_t out, int count) {
  LinearArguments a;
  WeightGradientArguments weights;
  a.rows = weights.rows = rows, a.in = in, a.count = weights.count = count;
  for (int i = 0; i < count; ++i) a.maps[i].out = weights.maps[i].out = out, weights.maps[i].in = in;
  for (const bool backward : {false, true}) {
    const int64_t columns = linear_columns(a, backward);
    const LaunchGrid grid = linear_grid(rows, columns);
    using Program = LinearProgram<ProductKind::kFloat, false, float>;
    if (!launch_fits<Program>(grid) || grid.blocks % tiles_of(rows) != 0 || grid.blocks / tiles_of(rows) > columns ||
        resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) < Program::kResident)
      return false;
  }
  const RowDivision division = weight_division(rows, weight_tiles(weights));
  weights.parts = division.parts, weights.table = count * (in * out + out);
  return is_division(division.parts, division.part_tiles, tiles_of(rows)) &&
         division.parts * weight_tiles(weights) <= std::max(2 * kSpreadBlocks, weight_tiles(weights)) &&
         launch_fits<WeightGradientProgram<ProductKind::kFloat, float>>(weight_grid(weights)) &&
         launch_fits<PartSumsProgram<32>>(part_sums_grid(weights.table, PartSumsProgram<32>::kThreads));
}

constexpr bool all_maps_fit() {
  for (const int64_t rows : {int64_t{1}, int64_t{64}, int64_t{65}, int64_t{1} << 31, int64_t{1} << 35})
    for (const int64_t in : {int64_t{1}, int64_t{65}, int64_t{256}, kMostWeights})
      for (const int count : {1, kMostMaps})
        if (!maps_fit(rows, in, kMostWeights / in, count)) return false;
  return true;
}

}  // namespace

TEST_CASE(
    "linear maps on a device: every number of rows, and every width in and out, from 1 to 130, near tiles' borders in "
    "two orders") {
  const PoisonedMemory poisoned;
  for (int64_t size = 1; size <= 130; ++size) {
    CAPTURE(size);
    const bool near = near_border(size);
    const WalkOrder first = order_at(size);
    CHECK(worst_map({.rows = size}, near, first) < kLikeFloat);
    CHECK(worst_map({.rows = 20, .in = size}, near, first) < kLikeFloat);
    // The gradient of one bias may come to little more than nothing.
    CHECK(worst_map({.rows = 20, .outs = {size, 8}}, near, first) < (size == 1 ? 1e-5 : kLikeFloat));
  }
}

TEST_CASE("linear maps on a device: shapes, maps with and without bias and gradient, in two orders") {
  const PoisonedMemory poisoned;
  CHECK(worst_map({.rows = 130, .in = 64, .outs = {64, 64, 64}}, true) < kLikeFloat);
  CHECK(worst_map({.rows = 100, .in = 150, .outs = {130, 1, 70, 65}}, true) < kLikeFloat);
  CHECK(worst_map({.rows = 1, .in = 8, .outs = {700}}, true) < kLikeFloat);  // blocks that share the columns
  // Blocks that take all columns, and several tiles of rows in a part.
  CHECK(worst_map({.rows = 64 * 140 + 1, .in = 4, .outs = {100}, .tf32 = true}) < kLikeTf32);
  CHECK(worst_map({.bias = false}, true) < kLikeFloat);
  CHECK(worst_map({.x_wanted = false}, true) < kLikeFloat);
  for (const int unused : {0, 1}) CHECK(worst_map({.unused = unused}, true) < kLikeFloat);
  CHECK(worst_map({.in = 16, .outs = {16, 8}, .shift = 1}, true) < kLikeFloat);
  CHECK(worst_map({.in = 96, .outs = {64}, .tf32 = true}, true) < kLikeTf32);
  // TF32 is not float: the bound of one would catch the other.
  CHECK(worst_map({.in = 96, .outs = {64}, .tf32 = true}) > 10 * kLikeFloat);
}

TEST_CASE("linear maps on a device in 16 bits: rows, widths and what is stored so, in two orders") {
  const PoisonedMemory poisoned;
  for (const at::ScalarType half : {at::kHalf, at::kBFloat16}) {
    CAPTURE(half);
    const double bound = half == at::kHalf ? 1e-3 : 8e-3;  // a result's last rounding
    for (int64_t size = 1; size <= 130; ++size) {
      CAPTURE(size);
      const bool near = near_border(size);
      const WalkOrder first = order_at(size);
      CHECK(worst_map({.rows = size, .stored = half}, near, first) < bound);
      CHECK(worst_map({.rows = 20, .in = size, .x = half, .stored = half}, near, first) < bound);
      CHECK(worst_map({.rows = 20, .outs = {size, 8}, .stored = half}, near, first) < bound);
    }
    for (const int64_t rows : {2, 70})
      CHECK(worst_map({.rows = rows, .outs = {3}, .x = half, .stored = half, .float_slopes = true}) < bound);
    for (const at::ScalarType x : {at::kFloat, half}) {
      CHECK(worst_map({.rows = 130, .in = 64, .outs = {64, 64, 64}, .x = x, .stored = half}, true) < bound);
      CHECK(worst_map({.rows = 100, .in = 150, .outs = {130, 1, 70, 65}, .x = x, .stored = half}, true) < bound);
      CHECK(worst_map({.in = 16, .outs = {16, 8}, .shift = 1, .x = x, .stored = half}, true) < bound);
      CHECK(worst_map({.rows = 64 * 140 + 1, .in = 4, .outs = {100}, .x = x, .stored = half}) < bound);
    }
  }
}

TEST_CASE("linear maps on a device in 16 bits: sums of products of two such numbers are float's") {
  for (const at::ScalarType half : {at::kHalf, at::kBFloat16}) {
    const WalkedMaps one{.rows = 100, .in = 70, .x = half, .stored = half};
    const MapTensors given(one);
    const Tensors got = walked_maps(one, given, WalkOrder::kForward), meant = defined_maps(one, given);
    for (const size_t i : {3, 4, 5, 6}) {  // gradients of weights and biases
      CHECK(got[i].scalar_type() == at::kFloat);
      CHECK(difference(got[i].to(at::kDouble), meant[i]) < kLikeFloat);
    }
  }
}

TEST_CASE("linear maps on a device: rows that nobody needs are zeros, whatever stands and arrives there") {
  const PoisonedMemory poisoned;
  const int64_t rows = 200;
  for (const at::Tensor& needed : needed_cases(rows)) {
    CAPTURE(needed);
    CHECK(worst_map({.rows = rows, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_map({.rows = rows, .in = 64, .outs = {64, 64}, .tf32 = true, .needed = needed}, true) < kLikeTf32);
    CHECK(worst_map({.rows = rows, .in = 70, .outs = {130, 9}, .bias = false, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_map({.rows = rows, .x_wanted = false, .unused = 0, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_map({.rows = rows, .in = 16, .outs = {16, 8}, .shift = 1, .needed = needed}, true) < kLikeFloat);
    for (const at::ScalarType half : {at::kHalf, at::kBFloat16})
      for (const at::ScalarType x : {at::kFloat, half})
        CHECK(worst_map({.rows = rows, .x = x, .stored = half, .needed = needed}, true) <
              (half == at::kHalf ? kLikeTf32 : 1e-2));
  }
  // Blocks that take all columns, and such as share them with another: each clears its own.
  for (const int64_t many : {64 * 140 + 1, 64 * 100}) {
    const at::Tensor needed = at::arange(many).remainder(300).lt(90);
    CHECK(worst_map({.rows = many, .in = 4, .outs = {130, 70}, .tf32 = true, .needed = needed}, true) < kLikeTf32);
  }
  const WalkedMaps one{.needed = at::ones({69}, at::kBool)};
  CHECK_THROWS_AS(walked_maps(one, MapTensors(one), WalkOrder::kForward), c10::Error);
}

TEST_CASE("linear maps on a device make products of tiles, and of half tiles backwards, that have a needed row") {
  check_products_of_tiles([](int64_t rows, const at::Tensor& needed) {
    const WalkedMaps one{.rows = rows, .needed = needed};
    int64_t all = 0;
    static_cast<void>(walked_maps(one, MapTensors(one), counting(all)));
    return all;
  });
}

TEST_CASE("linear maps on a device: a row that is lost loses no other") {
  const WalkedMaps one{.rows = 80, .in = 70};
  const MapTensors clean(one), lost(one);
  const float nan = float_of(0x7FFFFFFF);  // what a device makes of 0 / 0
  lost.x[3].fill_(nan);
  lost.gradients[0][3].fill_(nan);
  const Tensors meant = walked_maps(one, clean, WalkOrder::kForward), got = walked_maps(one, lost, WalkOrder::kForward);
  for (const size_t i : {0, 1, 2}) {  // results and the gradient of x
    CHECK(at::equal(got[i].narrow(0, 4, 76), meant[i].narrow(0, 4, 76)));
    CHECK(at::equal(got[i].narrow(0, 0, 3), meant[i].narrow(0, 0, 3)));
    CHECK(got[i][3].isnan().all().item<bool>());
  }
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of linear maps runs them: one launch forwards, two backwards") {
  counted_maps = counted_weights = told_of_rows = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("linear_forward", dispatched<counted_linear_forward>);
  library.impl("linear_backward", dispatched<counted_linear_backward>);
  const auto run_maps = [](at::ScalarType type, size_t count) {
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const at::Tensor x = leaf({4, 10, 64});
    std::vector<LinearMap> maps;
    for (size_t i = 0; i < count; ++i) maps.push_back({leaf({32, 64}), leaf({32})});
    const OpCounter counter;
    const Tensors results = linear(x, maps);
    CHECK(results.back().sizes() == at::IntArrayRef({4, 10, 32}));
    Tensors wanted{x}, slopes;
    for (const LinearMap& map : maps) wanted.insert(wanted.end(), {map.weight, map.bias});
    for (const at::Tensor& result : results) slopes.push_back(at::ones_like(result));
    const Tensors found = torch::autograd::grad(results, wanted, slopes);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == wanted[i].sizes());
    CHECK(counter.counts().flops == 3 * static_cast<int64_t>(count) * 2 * 40 * 64 * 32);
    return std::pair(std::exchange(counted_maps, 0), std::exchange(counted_weights, 0));
  };
  CHECK(run_maps(at::kFloat, 1) == std::pair(2, 1));
  CHECK(run_maps(at::kFloat, 3) == std::pair(2, 1));
  CHECK(run_maps(at::kDouble, 1) == std::pair(0, 0));
  CHECK(run_maps(at::kFloat, kMostMaps + 1) == std::pair(0, 0));

  // Whoever runs there is told which rows are needed.
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const auto options = at::TensorOptions(at::kMeta).dtype(type);
    const at::Tensor x = at::empty({4, 10, 64}, options).requires_grad_(true);
    const at::Tensor made =
        linear(x, LinearMap{at::empty({32, 64}, options), {}}, at::empty({4, 10}, options.dtype(at::kBool)));
    static_cast<void>(torch::autograd::grad({made}, {x}, {at::ones_like(made)}));
    CHECK(std::exchange(told_of_rows, 0) == (type == at::kFloat ? 2 : 0));
  }
}

TEST_CASE("plans of linear maps fit a device at any size, and leave no row out") {
  STATIC_REQUIRE(all_maps_fit());
  LinearArguments a;
  a.in = 100, a.count = 2, a.maps[0].out = 64, a.maps[1].out = 65;
  CHECK((linear_columns(a, false) == 3 && linear_columns(a, true) == 2));
}

}  // namespace xformer::kernels::linear_device_test
