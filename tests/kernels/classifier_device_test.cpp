// Maps with ReLU between them as a device computes them, walked on the CPU, against their definition in double
// precision.
#include "device_support.h"
#include "kernels/classifier/classifier.h"
#include "kernels/classifier/device.h"
#include "kernels/operator.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::classifier_device_test {

namespace {

struct Shape {
  int64_t rows = 5;
  std::vector<int64_t> widths{24, 40, 10};
  bool x_wanted = true;
};

struct Given {
  at::Tensor x, gradient;
  Tensors weights, biases;

  explicit Given(const Shape& one)
      : x(random_tensor("x", {one.rows, one.widths.front()}, at::kFloat)),
        gradient(random_tensor("gradient", {one.rows, one.widths.back()}, at::kFloat)) {
    for (size_t i = 0; i + 1 < one.widths.size(); ++i) {
      const std::string place = std::to_string(i);
      weights.push_back(random_tensor("weight" + place, {one.widths[i + 1], one.widths[i]}, at::kFloat) /
                        std::sqrt(static_cast<double>(one.widths[i])));
      biases.push_back(random_tensor("bias" + place, {one.widths[i + 1]}, at::kFloat));
    }
  }
};

std::vector<LinearMap> maps_of(const Tensors& weights, const Tensors& biases) {
  std::vector<LinearMap> maps;
  for (size_t i = 0; i < weights.size(); ++i) maps.push_back({weights[i], biases[i]});
  return maps;
}

// Scores, then gradients of x, weights and biases.
Tensors walked_scores(const Shape& one, const Given& given, WalkOrder order) {
  const auto launch = [&](bool backward) {
    return [order, backward](const ClassifierArguments& a) { run_classifier(a, backward, walking(order)); };
  };
  const ClassifierForward made = classifier_forward_device(given.x, given.weights, given.biases, launch(false));
  const LinearGradients found = classifier_backward_device(
      given.gradient, given.x, given.weights, given.biases, made.hidden, one.x_wanted, launch(true),
      [&](const WeightGradientArguments& a) { run_weight_gradients<WalkedTypes>(a, walking(order)); });
  Tensors result{made.scores};
  if (one.x_wanted) result.push_back(found.x);
  CHECK(found.x.defined() == one.x_wanted);
  result.insert(result.end(), found.weights.begin(), found.weights.end());
  result.insert(result.end(), found.biases.begin(), found.biases.end());
  return result;
}

Tensors defined_scores(const Shape& one, const Given& given) {
  const size_t count = given.weights.size();
  Tensors inputs{given.x};
  inputs.insert(inputs.end(), given.weights.begin(), given.weights.end());
  inputs.insert(inputs.end(), given.biases.begin(), given.biases.end());
  Tensors result = in_double(
      [&](const Tensors& in) -> Tensors {
        const auto weights = in.begin() + 1, biases = weights + static_cast<std::ptrdiff_t>(count);
        return {classifier_reference(in[0], maps_of({weights, biases}, {biases, in.end()}))};
      },
      inputs, {given.gradient});
  if (!one.x_wanted) result.erase(result.begin() + 1);
  return result;
}

double worst_scores(const Shape& one) {
  const Given given(one);
  return worst_walked([&](WalkOrder order) { return walked_scores(one, given, order); }, defined_scores(one, given));
}

}  // namespace

TEST_CASE("a classifier on a device: every number of rows, and every width, from 1 to 130, in two orders") {
  const PoisonedMemory poisoned;
  for (int64_t size = 1; size <= 130; ++size) {
    CAPTURE(size);
    CHECK(worst_scores({.rows = size}) < 5e-6);
    CHECK(worst_scores({.widths = {size, 40, 10}}) < 5e-6);
    CHECK(worst_scores({.widths = {24, size, 10}}) < 5e-6);
    CHECK(worst_scores({.widths = {24, 40, size}}) < 5e-6);
  }
}

TEST_CASE("a classifier on a device: two maps or three, the widest, and no gradient of its rows") {
  const PoisonedMemory poisoned;
  CHECK(worst_scores({.rows = 33, .widths = {64, 128, 96, 10}}) < 5e-6);
  CHECK(worst_scores({.rows = 3, .widths = {kWidestClassifier, 32, 2}}) < 5e-6);
  CHECK(worst_scores({.rows = 3, .widths = {16, kWidestClassifier, 32, kWidestClassifier}}) < 5e-6);
  CHECK(worst_scores({.rows = 7, .x_wanted = false}) < 5e-6);
  CHECK(worst_scores({.rows = 300, .widths = {8, 16, 2}}) < 5e-6);
  CHECK_THROWS_AS(worst_scores({.widths = {24, 10}}), c10::Error);
  CHECK_THROWS_AS(worst_scores({.widths = {24, 8, 8, 8, 10}}), c10::Error);
}

TEST_CASE("a classifier on a device: what is no number comes through, and a number at ReLU's turn has no gradient") {
  const Shape one{.rows = 4};
  const Given given(one);
  const Tensors meant = walked_scores(one, given, WalkOrder::kForward);
  given.x[2].fill_(NAN);
  const Tensors got = walked_scores(one, given, WalkOrder::kForward);
  CHECK(got[0][2].isnan().all().item<bool>());
  for (const int64_t row : {0, 1, 3}) {
    CHECK(at::equal(got[0][row], meant[0][row]));
    CHECK(at::equal(got[1][row], meant[1][row]));
  }
  const Given zero(one);
  zero.weights[0].zero_(), zero.biases[0].zero_();
  CHECK(walked_scores(one, zero, WalkOrder::kForward)[1].abs().max().item<double>() == 0);
  CHECK(walked_scores(one, zero, WalkOrder::kForward)[2].abs().max().item<double>() == 0);
}

TEST_CASE("a classifier on a CPU is its maps, with their bits") {
  const Given given({.rows = 9});
  const std::vector<LinearMap> maps = maps_of(given.weights, given.biases);
  CHECK(at::equal(classifier(given.x, maps), linear(at::relu(linear(given.x, maps[0])), maps[1])));
  CHECK(at::equal(classifier(given.x, {maps[0]}), linear(given.x, maps[0])));
}

namespace {

int counted_passes = 0, counted_weights = 0;

ClassifierForward counted_forward(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                  const std::vector<at::Tensor>& biases) {
  return classifier_forward_device(x, weights, biases, [](const ClassifierArguments&) { ++counted_passes; });
}
LinearGradients counted_backward(const at::Tensor& gradient, const at::Tensor& x,
                                 const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                 const std::vector<at::Tensor>& hidden, bool x_wanted) {
  return classifier_backward_device(
      gradient, x, weights, biases, hidden, x_wanted, [](const ClassifierArguments&) { ++counted_passes; },
      [](const WeightGradientArguments&) { ++counted_weights; });
}

}  // namespace

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of classifiers runs small ones of few rows, one launch forwards and two backwards") {
  counted_passes = counted_weights = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("classifier_forward", dispatched<counted_forward>);
  library.impl("classifier_backward", dispatched<counted_backward>);
  const auto leaf = [](at::IntArrayRef shape, at::ScalarType type) {
    return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
  };
  const auto maps_between = [&](const std::vector<int64_t>& widths, at::ScalarType type, bool bias = true) {
    std::vector<LinearMap> maps;
    for (size_t i = 0; i + 1 < widths.size(); ++i)
      maps.push_back({leaf({widths[i + 1], widths[i]}, type), bias ? leaf({widths[i + 1]}, type) : at::Tensor()});
    return maps;
  };
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{64, 128, 10}, {64, 128, 64, 10}}) {
    const at::Tensor x = leaf({4, 8, 64}, at::kFloat);
    const std::vector<LinearMap> maps = maps_between(widths, at::kFloat);
    int64_t weights = 0;
    for (const LinearMap& map : maps) weights += map.weight.numel();
    const OpCounter counter;
    const at::Tensor scores = classifier(x, maps);
    CHECK(scores.sizes() == at::IntArrayRef({4, 8, 10}));
    static_cast<void>(torch::autograd::grad({scores}, {x, maps[0].weight}, {at::ones_like(scores)}));
    CHECK(counter.counts().flops == 3 * 2 * 32 * weights);
    CHECK(std::pair(std::exchange(counted_passes, 0), std::exchange(counted_weights, 0)) == std::pair(2, 1));
  }

  const auto fits = [&](at::ScalarType type, int64_t rows, const std::vector<int64_t>& widths, bool bias = true) {
    return fits_classifier_programs(leaf({rows, widths.front()}, type), maps_between(widths, type, bias));
  };
  CHECK(fits(at::kFloat, kMostClassifierRows, {kWidestClassifier, 32, kWidestClassifier}));
  CHECK_FALSE(fits(at::kDouble, 32, {64, 128, 10}));
  CHECK_FALSE(fits(at::kFloat, 32, {64, 10}));
  CHECK_FALSE(fits(at::kFloat, 32, {64, 8, 8, 8, 10}));
  CHECK_FALSE(fits(at::kFloat, 32, {64, 128, 10}, /*bias=*/false));
  CHECK_FALSE(fits(at::kFloat, 0, {64, 128, 10}));
  CHECK_FALSE(fits(at::kFloat, kMostClassifierRows + 1, {64, 128, 10}));
  CHECK_FALSE(fits(at::kFloat, 32, {kWidestClassifier + 1, 16, 10}));
  CHECK_FALSE(fits(at::kFloat, 32, {8, kWidestClassifier + 1, 10}));
  CHECK_FALSE(fits(at::kFloat, 32, {1024, 1024, 10}));
}

TEST_CASE("plans of classifiers fit a device at their limits") {
  STATIC_REQUIRE(launch_fits<ClassifierForwardProgram>(classifier_grid(kMostClassifierRows, kWidestClassifier)));
  STATIC_REQUIRE(launch_fits<ClassifierBackwardProgram>(classifier_grid(1, 1)));
  STATIC_REQUIRE(resident_blocks(kSm80, kClassifierThreads, 1, classifier_grid(1, kWidestClassifier).shared_bytes) >=
                 ClassifierForwardProgram::kResident);
}

}  // namespace xformer::kernels::classifier_device_test
