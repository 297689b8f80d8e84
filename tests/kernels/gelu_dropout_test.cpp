// Gelu and dropout in one pass against their definition: outputs and gradients, both forms, over the whole real line.
#include "kernels/gelu_dropout/gelu_dropout.h"

#include <ATen/Parallel.h>

#include "core/error.h"
#include "core/random.h"
#include "fused_support.h"
#include "kernels/policy.h"
#include "place_support.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

TensorFunction gelu_operator(bool tanh, double p, bool reference) {
  return [=](const Tensors& x) {
    return Tensors{reference ? gelu_dropout_reference(x[0], tanh, place_of(p)) : gelu_dropout(x[0], tanh, place_of(p))};
  };
}

double difference_of(at::IntArrayRef shape, bool tanh, double p, at::ScalarType type) {
  return worst_difference(gelu_operator(tanh, p, false), gelu_operator(tanh, p, true),
                          {random_tensor("x", shape, type)});
}

}  // namespace

TEST_CASE("gelu and dropout in one pass equal their definition, with gradients") {
  Stream numbers(8);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(numbers.next_below(bound)); };
  for (int turn = 0; turn < 30; ++turn) {
    const std::vector<int64_t> shape{1 + below(3), 1 + below(200), 1 + below(130)};
    const double p = below(3) == 0 ? 0 : 0.2;
    for (const bool tanh : {false, true}) {
      CAPTURE(shape, p, tanh);
      CHECK(difference_of(shape, tanh, p, at::kDouble) < 1e-11);
      CHECK(difference_of(shape, tanh, p, at::kFloat) < 3e-6);
    }
  }
  CHECK(difference_of({0, 4}, false, 0.1, at::kFloat) == 0);
  CHECK(difference_of({3, 100001}, false, 0.1, at::kFloat) < 3e-6);
}

TEST_CASE("gelu keeps its relative precision far from zero, and infinities") {
  const at::Tensor x = at::cat({at::linspace(-12, 12, 4001), at::tensor({-200.F, -INFINITY, 200.F, INFINITY})});
  for (const bool tanh : {false, true}) {
    CAPTURE(tanh);
    const at::Tensor got = gelu_dropout(x, tanh, {}).narrow(0, 0, 4001).to(at::kDouble);
    const at::Tensor meant = at::gelu(x.narrow(0, 0, 4001).to(at::kDouble), tanh ? "tanh" : "none");
    CHECK((got - meant).abs().max().item<double>() < 1e-6);
    // From 0 up, of the value itself.
    const at::Tensor relative = ((got - meant) / meant.abs().clamp_min(1e-3)).narrow(0, 2001, 2000);
    CHECK(relative.abs().max().item<double>() < 1e-6);
    const at::Tensor far = gelu_dropout(x, tanh, {}).narrow(0, 4001, 4);
    CHECK(far[0].item<float>() == 0);
    CHECK(far[2].item<float>() == 200);
    CHECK(far[3].item<float>() == INFINITY);
  }
  CHECK(gelu_dropout(at::full({3}, NAN), false, {}).isnan().all().item<bool>());
}

TEST_CASE("gelu and dropout take a tensor as it lies, and give the same bits on any number of threads") {
  const Tensors turned{random_tensor("x", {30, 40, 5}).transpose(0, 2)};
  CHECK(worst_difference(gelu_operator(false, 0.1, false), gelu_operator(false, 0.1, true), turned) < 1e-11);
  const Tensors inputs{random_tensor("x", {7, 300, 64}, at::kFloat)};
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = run_with_gradients(gelu_operator(false, 0.1, false), inputs);
  at::set_num_threads(5);
  const Tensors five = run_with_gradients(gelu_operator(false, 0.1, false), inputs);
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) CHECK(at::equal(one[i], five[i]));
}

TEST_CASE("--kernels=check holds gelu and dropout against their definition, --kernels=reference runs that") {
  const Tensors inputs{random_tensor("x", {2, 50, 16}, at::kFloat)};
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(run_with_gradients(gelu_operator(false, 0.1, false), inputs));
  CHECK_NOTHROW(run_with_gradients(gelu_operator(true, 0, false), inputs));
  set_policy(Policy::kReference);
  CHECK(at::equal(gelu_operator(false, 0, false)(inputs)[0], at::gelu(inputs[0], "none")));
  set_policy(Policy::kAuto);
}

}  // namespace xformer::kernels
