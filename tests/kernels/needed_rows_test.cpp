// Rows that nobody reads: operators that are told of them against their definitions, whatever stands in those rows and
// whatever arrives there as a gradient; and what they leave out.
#include "kernels/cpu/needed_rows.h"

#include "core/error.h"
#include "core/random.h"
#include "fused_support.h"
#include "kernels/embedding/embedding.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/residual_norm/residual_norm.h"
#include "place_support.h"
#include "poisoned_memory.h"
#include "policy_scope.h"
#include "tensor/autocast.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kWidth = 24;

// [3, n]: beginnings, the second with a hole, the third nothing.
at::Tensor beginnings(int64_t n) {
  at::Tensor result = at::zeros({3, n}, at::kBool);
  result[0].slice(0, 0, (3 * n + 3) / 4).fill_(true);
  result[1].slice(0, 0, (n + 2) / 3).fill_(true);
  result[1].slice(0, n / 8, n / 6).fill_(false);
  return result;
}

at::Tensor scattered(int64_t n) { return random_tensor("which", {3, n}).gt(0.5); }

struct Case {
  std::string name;
  std::function<Tensors(const Tensors&x, const at::Tensor&needed)> fused, reference;
  size_t rows;  // so many of the inputs have rows
};

std::vector<Case> operators() {
  const DropoutPlace drop = place_of(0.2);
  const auto two_maps = [](const Tensors& x, const at::Tensor& needed) {
    return linear(x[0], std::vector<LinearMap>{{x[2], x[3]}, {x[4], x[5]}}, needed);
  };
  const auto two_maps_reference = [](const Tensors& x, const at::Tensor& needed) {
    return Tensors{needed_alone(at::linear(x[0], x[2], x[3]), needed),
                   needed_alone(at::linear(x[0], x[4], x[5]), needed)};
  };
  const auto feed = [=](auto* run) {
    return [=](const Tensors& x, const at::Tensor& needed) {
      return Tensors{run(x[0], {x[2], x[3]}, {x[4], x[5]}, false, drop, needed)};
    };
  };
  const auto norm = [=](auto* run, bool branch) {
    return [=](const Tensors& x, const at::Tensor& needed) {
      const ResidualNorm made = run(x[0], branch ? x[1] : at::Tensor(), drop, {x[3], x[5], 1e-4}, needed);
      return Tensors{made.sum, made.normed};
    };
  };
  // Of tables alone.
  const auto embed = [=](auto* run) {
    return [=](const Tensors& x, const at::Tensor& needed) {
      const at::Tensor ids = at::arange(3 * x[0].size(1)).remainder(kWidth).view({3, -1});
      return Tensors{run(x[2], ids, x[0].select(0, 0), drop, needed)};
    };
  };
  return {{"linear", two_maps, two_maps_reference, 1},
          {"feed_forward", feed(&feed_forward), feed(&feed_forward_reference), 1},
          {"residual_norm", norm(&residual_norm, true), norm(&residual_norm_reference, true), 2},
          {"residual_norm alone", norm(&residual_norm, false), norm(&residual_norm_reference, false), 1},
          {"embedding", embed(&embedding), embed(&embedding_reference), 0}};
}

// Two tensors of rows, two maps.
Tensors inputs_of(int64_t n, at::ScalarType type) {
  const auto tensor = [&](const char* name, at::IntArrayRef shape) { return random_tensor(name, shape, type); };
  return {tensor("x", {3, n, kWidth}), tensor("branch", {3, n, kWidth}), tensor("in", {kWidth, kWidth}),
          tensor("in bias", {kWidth}), tensor("out", {kWidth, kWidth}),  tensor("out bias", {kWidth})};
}

TensorFunction with(const std::function<Tensors(const Tensors& x, const at::Tensor& needed)>& run,
                    const at::Tensor& needed) {
  return [=](const Tensors& x) { return run(x, needed); };
}

}  // namespace

TEST_CASE("operators over needed rows equal their definitions, with gradients") {
  for (const Case& one : operators())
    for (const int64_t n : {1, 63, 64, 190, 700})
      for (const at::Tensor& needed :
           {beginnings(n), scattered(n), at::zeros({3, n}, at::kBool), at::ones({3, n}, at::kBool), at::Tensor()}) {
        CAPTURE(one.name, n, needed);
        const auto apart = [&](at::ScalarType type) {
          return worst_difference(with(one.fused, needed), with(one.reference, needed), inputs_of(n, type));
        };
        CHECK(apart(at::kDouble) < 1e-11);
        CHECK(apart(at::kFloat) < 2e-5);
      }
}

TEST_CASE("in rows that nobody needs anything may stand and arrive") {
  const int64_t n = 190;
  const at::Tensor needed = beginnings(n), others = needed.logical_not().unsqueeze(-1);
  const PoisonedMemory poisoned;
  for (const Case& one : operators()) {
    INFO(one.name);
    const Tensors inputs = inputs_of(n, at::kFloat);
    Tensors broken = inputs;
    for (size_t i = 0; i < one.rows; ++i) broken[i] = inputs[i].masked_fill(others, NAN);
    const Tensors meant = run_with_gradients(with(one.fused, needed), inputs);
    const Tensors got = run_with_gradients(with(one.fused, needed), broken);
    for (size_t i = 0; i < meant.size(); ++i) {
      INFO(i);
      // A sum that is x itself is x in those rows, too.
      if (i == 0 && one.name == "residual_norm alone") continue;
      CHECK(got[i].equal(meant[i]));
    }
  }
}

TEST_CASE("operators over needed rows in bf16 hold against their definitions") {
  const PolicyScope check(Policy::kCheck);
  const AutocastScope autocast(at::kCPU, at::kBFloat16);
  for (const Case& one : operators())
    for (const at::Tensor& needed : {beginnings(190), scattered(190)}) {
      INFO(one.name);
      const Tensors made = run_with_gradients(with(one.fused, needed), inputs_of(190, at::kFloat));
      CHECK(made.back().isfinite().all().item<bool>());
      if (one.name != "residual_norm alone")
        CHECK(made[0].masked_select(needed.logical_not().unsqueeze(-1)).count_nonzero().item<int64_t>() == 0);
    }
}

TEST_CASE("products are made of 64 rows at a time that have a needed one") {
  at::Tensor needed = at::zeros({3, 640}, at::kBool);
  needed[1].slice(0, 0, 65).fill_(true);
  const Tensors inputs = inputs_of(640, at::kFloat);
  const std::vector<Case> cases = operators();
  const auto flops = [&](const Case& one) {
    const OpCounter counter;
    static_cast<void>(run_with_gradients(with(one.fused, needed), inputs));
    return counter.counts().flops;
  };
  constexpr int64_t kMap = int64_t{2} * kWidth * kWidth * 128;
  CHECK(flops(cases[0]) == 3 * 2 * kMap);
  CHECK(flops(cases[1]) == 3 * 2 * kMap);
  CHECK_THROWS_AS(linear(inputs[0], {inputs[2], inputs[3]}, needed.narrow(0, 0, 2)), InternalError);
}

}  // namespace xformer::kernels
