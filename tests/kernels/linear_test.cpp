// Linear maps in blocks of rows against at::linear: outputs and gradients of one map and of several, and what is
// counted.
#include "kernels/linear/linear.h"

#include <ATen/autocast_mode.h>

#include "core/error.h"
#include "core/random.h"
#include "fused_support.h"
#include "kernels/linear/autocast.h"
#include "kernels/policy.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct LinearCase {
  std::vector<int64_t> shape;  // of x
  std::vector<int64_t> outs;
  bool bias = true;
};

// x, then weights, then biases.
Tensors inputs_of(const LinearCase& one, at::ScalarType type) {
  Tensors inputs{random_tensor("x", one.shape, type)};
  for (const int64_t out : one.outs)
    inputs.push_back(random_tensor("weight" + std::to_string(inputs.size()), {out, one.shape.back()}, type));
  if (one.bias)
    for (const int64_t out : one.outs)
      inputs.push_back(random_tensor("bias" + std::to_string(inputs.size()), {out}, type));
  return inputs;
}

std::vector<LinearMap> maps_of(const Tensors& inputs, size_t count) {
  std::vector<LinearMap> maps;
  for (size_t i = 0; i < count; ++i)
    maps.push_back({inputs[1 + i], inputs.size() > 1 + count ? inputs[1 + count + i] : at::Tensor()});
  return maps;
}

TensorFunction linear_operator(size_t count) {
  return [count](const Tensors& inputs) { return linear(inputs[0], maps_of(inputs, count)); };
}

TensorFunction reference_operator(size_t count) {
  return [count](const Tensors& inputs) {
    Tensors results;
    for (const LinearMap& map : maps_of(inputs, count)) results.push_back(at::linear(inputs[0], map.weight, map.bias));
    return results;
  };
}

double difference_of(const LinearCase& one, at::ScalarType type) {
  return worst_difference(linear_operator(one.outs.size()), reference_operator(one.outs.size()), inputs_of(one, type));
}

}  // namespace

TEST_CASE("linear maps in blocks equal at::linear, with gradients, alone and together") {
  const std::vector<LinearCase> cases = {
      {{1, 1}, {1}},
      {{3, 5, 7}, {4}},
      {{2, 700, 64}, {64}},
      {{2, 700, 64}, {64}, false},
      {{4000, 33}, {17, 5}},
      {{3, 1500, 64}, {64, 64, 64}},
      {{2, 900, 40}, {8, 64, 3}, false},
      {{5, 512}, {600}},
      {{3, 300, 512}, {700, 256}},
      {{9}, {4}},
      {{20000, 3}, {2}},
      {{0, 4, 8}, {5}},
  };
  for (const LinearCase& one : cases) {
    CAPTURE(one.shape, one.outs, one.bias);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
    CHECK(difference_of(one, at::kFloat) < 2e-5);
  }
}

TEST_CASE("linear maps over random shapes") {
  Stream numbers(12);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(numbers.next_below(bound)); };
  for (int turn = 0; turn < 25; ++turn) {
    LinearCase one{{1 + below(3), 1 + below(2500), 1 + below(80)}, {}};
    for (int64_t left = 1 + below(3); left > 0; --left) one.outs.push_back(1 + below(130));
    one.bias = below(3) > 0;
    CAPTURE(one.shape, one.outs, one.bias);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
  }
}

TEST_CASE("linear: a map whose result is not used has no gradient and costs none") {
  const Tensors inputs = inputs_of({{2, 300, 16}, {8, 8, 8}}, at::kDouble);
  Tensors leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_(true));
  const Tensors results = linear_operator(3)(leaves);
  const OpCounter counter;
  results[1].sum().backward();
  CHECK(counter.counts().flops == 2 * 2 * 600 * 16 * 8);
  CHECK_FALSE(leaves[1].grad().defined());
  CHECK(leaves[2].grad().defined());
  CHECK_FALSE(leaves[6].grad().defined());
  CHECK(difference(leaves[0].grad(), inputs[2].sum(0).expand({2, 300, 16})) < 1e-12);
}

TEST_CASE("linear: an input without a gradient costs none, frozen weights get none") {
  const Tensors inputs = inputs_of({{2, 300, 16}, {8}}, at::kDouble);
  const at::Tensor weight = inputs[1].detach().requires_grad_(true);
  const at::Tensor result = linear(inputs[0], {weight, inputs[2]});
  const OpCounter counter;
  result.sum().backward();
  CHECK(counter.counts().flops == 2 * 600 * 16 * 8);
  CHECK(difference(weight.grad(), inputs[0].view({600, 16}).sum(0).expand({8, 16})) < 1e-12);
  CHECK_FALSE(inputs[2].grad().defined());
}

TEST_CASE("linear counts as at::linear does") {
  const Tensors inputs = inputs_of({{2, 700, 24}, {8, 40}}, at::kFloat);
  const auto flops = [&](const TensorFunction& run) {
    const OpCounter counter;
    static_cast<void>(run(inputs));
    return counter.counts().flops;
  };
  CHECK(flops(linear_operator(2)) == flops(reference_operator(2)));
  CHECK(flops(linear_operator(2)) == 2 * 1400 * 24 * 48);
}

TEST_CASE("linear takes tensors as they lie, and gives the same bits on any number of threads") {
  const Tensors turned{random_tensor("x", {16, 50, 9}).transpose(0, 2), random_tensor("weight", {16, 12}).t(),
                       random_tensor("bias", {1}).expand({12})};
  CHECK(worst_difference(linear_operator(1), reference_operator(1), turned) < 1e-11);
  const Tensors inputs = inputs_of({{4, 2000, 64}, {64, 64, 64}}, at::kFloat);
  CHECK(same_on_any_threads(linear_operator(3), inputs));
}

TEST_CASE("linear takes maps of so many weights, and leaves larger ones to LibTorch") {
  const at::Tensor x = random_tensor("x", {70, 512}, at::kFloat);
  const int64_t most = most_weights(x) / x.size(1);
  CHECK(most >= 128);
  for (const int64_t out : {most, most + 1}) {
    const int64_t before = fused_calls("linear");
    CHECK(difference_of({{70, 512}, {out}}, at::kFloat) < 2e-5);
    CHECK((fused_calls("linear") > before) == (out == most));
  }
  const Tensors large = inputs_of({{1200, 512}, {700, 300}}, at::kFloat);
  CHECK(same_on_any_threads(linear_operator(2), large));
}

TEST_CASE("linear under autocast is at::linear under autocast, but for where it rounds") {
  const Tensors inputs = inputs_of({{2, 30, 16}, {8}}, at::kFloat);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor got = linear_operator(1)(inputs)[0], meant = reference_operator(1)(inputs)[0];
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(got.scalar_type() == at::kBFloat16);
  CHECK(difference(got.to(at::kFloat), meant.to(at::kFloat)) <
        3.0 / 256);  // the bias, which stays float, and the result
}

TEST_CASE("--kernels=check holds linear maps against at::linear, --kernels=reference runs that") {
  const Tensors inputs = inputs_of({{2, 50, 16}, {8, 24}}, at::kFloat);
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(run_with_gradients(linear_operator(2), inputs));
  set_policy(Policy::kReference);
  const OpCounter counter;
  CHECK(at::equal(linear_operator(2)(inputs)[1], reference_operator(2)(inputs)[1]));
  set_policy(Policy::kAuto);
  CHECK(counter.counts().calls > 4);
}

}  // namespace xformer::kernels
