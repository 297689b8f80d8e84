// Losses in blocks against cross entropy of all scores at once: values, gradients, places without a label, memory.
#include "models/place_loss.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "kernels/policy_scope.h"
#include "models/family_model.h"
#include "tensor/memory.h"
#include "tensor/op_profiler.h"

namespace xformer::models::place_loss_test {

using namespace family_model;

namespace {

struct Call {
  at::Tensor x, weight, bias, labels;  // [2,5,m], [v,m], [v], [2,5]

  explicit Call(bool with_bias = true, int64_t m = 6, int64_t v = 11) {
    const InitStream init(3);
    x = init.normal("x", {2, 5, m}, 1).to(at::kDouble).requires_grad_();
    weight = init.normal("weight", {v, m}, 1).to(at::kDouble).requires_grad_();
    if (with_bias) bias = init.normal("bias", {v}, 1).to(at::kDouble).requires_grad_();
    labels = at::tensor({3, -1, 0, 10, 7, -1, -1, 2, 2, 5}, at::kLong).view({2, 5});
  }
};

}  // namespace

TEST_CASE("losses made in blocks of any size are cross entropies, with their gradients", "[place-loss]") {
  for (const bool with_bias : {true, false})
    for (const int64_t block : {1, 3, 5, 10, 64}) {
      CAPTURE(with_bias, block);
      const Call call(with_bias), plain(with_bias);
      const at::Tensor made = place_losses(call.x, {call.weight, call.bias}, call.labels, block);
      REQUIRE(made.sizes() == at::IntArrayRef({2, 5, 1, 2}));
      const at::Tensor scores = at::linear(plain.x, plain.weight, plain.bias);
      const at::Tensor asked = plain.labels >= 0;
      const at::Tensor meant =
          -at::log_softmax(scores, -1).gather(2, plain.labels.clamp_min(0).unsqueeze(2)).squeeze(2) * asked;
      const at::Tensor losses = made.select(-1, 0).squeeze(-1), right = made.select(-1, 1).squeeze(-1);
      CHECK(apart(losses, meant) < 1e-12);
      CHECK(right.to(at::kBool).equal(scores.argmax(-1).eq(plain.labels)));
      // Any weights of the places.
      const at::Tensor factors = at::arange(10, at::kDouble).view({2, 5}) - 3;
      (losses * factors).sum().backward();
      (meant * factors).sum().backward();
      CHECK(apart(call.x.grad(), plain.x.grad()) < 1e-12);
      CHECK(apart(call.weight.grad(), plain.weight.grad()) < 1e-12);
      if (with_bias) CHECK(apart(call.bias.grad(), plain.bias.grad()) < 1e-12);
      CHECK(call.x.grad()[0][1].abs().sum().item<double>() == 0);
    }
  const Call call;
  CHECK_THROWS_AS(place_losses(call.x, {call.weight, call.bias}, call.labels.narrow(1, 0, 4), 2), InternalError);
}

TEST_CASE("a decoder that makes its losses in blocks trains as one that makes its scores", "[place-loss]") {
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    const auto built = [&](int64_t block) {
      ModelRequest request = request_for("decoder", "softmax", {16, 20}, 17,
                                         {{"dim", 16}, {"head_dim", 8}, {"tied", tied}, {"loss_block", block}});
      request.causal = true;
      return build("decoder", request);
    };
    const auto whole = built(0), parts = built(7);
    ModelInput input{(at::arange(48, at::kLong) * 7 % 20).view({3, 16}), at::ones({3, 16}, at::kBool)};
    CHECK(whole->forward(input).equal(parts->forward(input)));  // scores are scores where nobody brings labels
    input.labels = (at::arange(48, at::kLong) * 5 % 18).view({3, 16}) - 1;
    const at::Tensor scores = whole->forward(input), made = parts->forward(input);
    CHECK(scores.sizes() == at::IntArrayRef({3, 16, 17}));
    const at::Tensor loss =
        at::cross_entropy_loss(scores.flatten(0, 1), input.labels.flatten(), {}, at::Reduction::Sum, -1);
    CHECK(made.select(-1, 0).sum().item<double>() == Approx(loss.item<double>()).epsilon(1e-5));
    loss.backward();
    made.select(-1, 0).sum().backward();
    const auto other = parts->named_parameters();
    for (const auto& entry : whole->named_parameters()) {
      CAPTURE(entry.key());
      CHECK(apart(entry.value().grad(), other.find(entry.key())->grad()) < 1e-4);
    }
  }
}

TEST_CASE("losses in blocks are of products by tiles of our operators, and none of LibTorch's", "[place-loss]") {
  const kernels::PolicyScope fused(kernels::Policy::kAuto);
  for (const bool with_bias : {true, false}) {
    const Call call(with_bias);
    kernels::LinearMap map{call.weight.to(at::kFloat), {}};
    if (with_bias) map.bias = call.bias.to(at::kFloat);
    const OpProfiler profiler;
    place_losses(call.x.to(at::kFloat), map, call.labels, 3).select(-1, 0).sum().backward();
    const auto profile = profiler.profile();
    CHECK(profile.products.empty());
    int64_t flops = 0;
    for (const auto& [name, figures] : profile.operators) {
      INFO(name);
      if (name.starts_with("xformer::")) flops += figures.flops;
      else CHECK(figures.flops == 0);
    }
    CHECK(flops == 4 * 2 * 10 * 6 * 11);  // scores twice, gradients of both factors
  }
}

TEST_CASE("the scores of all places are never in memory at once", "[place-loss]") {
  install_caching_allocator();
  constexpr int64_t kPlaces = 4096, kIds = 4096, kBlock = 64;
  const int64_t all = kPlaces * kIds * static_cast<int64_t>(sizeof(float));
  const at::Tensor x = at::randn({1, kPlaces, 8}).requires_grad_(), weight = at::randn({kIds, 8}).requires_grad_();
  const at::Tensor labels = at::zeros({1, kPlaces}, at::kLong);
  const auto peak = [&](const auto& loss) {
    reset_host_peak();
    const int64_t before = host_memory().live_bytes;
    loss().backward();
    return host_memory().peak_bytes - before;
  };
  const int64_t made = peak([&] { return place_losses(x, {weight, {}}, labels, kBlock).select(-1, 0).sum(); });
  const int64_t plain = peak([&] {
    return at::cross_entropy_loss(at::linear(x, weight).flatten(0, 1), labels.flatten(), {}, at::Reduction::Sum);
  });
  CHECK(plain > all);
  CHECK(made < all / 8);
}

}  // namespace xformer::models::place_loss_test
