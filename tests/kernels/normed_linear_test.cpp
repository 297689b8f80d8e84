// Linear maps of rows whose norm they make themselves, against the norm and the maps one behind the other: outputs,
// gradients of both uses of x, rows that nobody needs, maps without a gradient.
#include <ATen/Functions.h>

#include <limits>
#include <optional>

#include "fused_support.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/fused.h"
#include "kernels/linear/linear.h"
#include "policy_scope.h"
#include "tensor/autocast.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct NormedCase {
  std::vector<int64_t> shape;  // of x
  std::vector<int64_t> outs;
  bool bias = true;
  at::Tensor needed = {};
};

// x, the norm's weight and bias, then weights, then biases.
Tensors inputs_of(const NormedCase& one, at::ScalarType type) {
  const int64_t in = one.shape.back();
  Tensors inputs{random_tensor("x", one.shape, type) * 2 + 1, random_tensor("norm weight", {in}, type),
                 random_tensor("norm bias", {in}, type)};
  for (const int64_t out : one.outs)
    inputs.push_back(random_tensor("weight" + std::to_string(inputs.size()), {out, in}, type) /
                     std::sqrt(static_cast<double>(in)));
  if (one.bias)
    for (const int64_t out : one.outs)
      inputs.push_back(random_tensor("bias" + std::to_string(inputs.size()), {out}, type));
  return inputs;
}

std::vector<LinearMap> maps_of(const NormedCase& one, const Tensors& inputs) {
  std::vector<LinearMap> maps;
  for (size_t i = 0; i < one.outs.size(); ++i)
    maps.push_back({inputs[3 + i], one.bias ? inputs[3 + one.outs.size() + i] : at::Tensor()});
  return maps;
}

NormWeights norm_of(const Tensors& x) { return {x[1], x[2], 1e-4}; }

// The maps' results, and behind them x as a caller goes on with it.
TensorFunction joined(const NormedCase& one) {
  return [one](const Tensors& x) -> Tensors {
    NormedRows rows{x[0], x[0], norm_of(x)};
    Tensors results = linear(rows, maps_of(one, x), one.needed);
    results.push_back(rows.sum);
    return results;
  };
}
TensorFunction apart(const NormedCase& one) {
  return [one](const Tensors& x) -> Tensors {
    const ResidualNorm entry = residual_norm(x[0], {}, {}, norm_of(x), one.needed);
    Tensors results = linear(entry.normed, maps_of(one, x), one.needed);
    results.push_back(entry.sum);
    return results;
  };
}
TensorFunction defined(const NormedCase& one) {
  return [one](const Tensors& x) -> Tensors {
    const at::Tensor normed = at::layer_norm(x[0], {x[0].size(-1)}, x[1], x[2], 1e-4);
    Tensors results;
    for (const LinearMap& map : maps_of(one, x))
      results.push_back(needed_alone(at::linear(normed, map.weight, map.bias), one.needed));
    results.push_back(x[0] + 0);
    return results;
  };
}

std::vector<NormedCase> cases() {
  at::Tensor beginnings = at::zeros({3, 190}, at::kBool);
  beginnings[0].fill_(true), beginnings[1].slice(0, 0, 70).fill_(true);
  std::vector<NormedCase> result{
      {{1, 8}, {4}},    {{3, 5, 7}, {4}, false}, {{2, 700, 64}, {64, 64, 64}}, {{2, 333, 40}, {8, 64, 3}, false},
      {{5, 96}, {130}}, {{3000, 33}, {17, 5}}};
  for (const at::Tensor& needed :
       {random_tensor("which", {3, 190}).gt(0.5), beginnings, at::zeros({3, 190}, at::kBool)})
    result.push_back({{3, 190, 24}, {24, 16}, true, needed});
  return result;
}

}  // namespace

TEST_CASE("linear maps of a norm they make themselves equal their definition, with gradients") {
  for (const NormedCase& one : cases()) {
    CAPTURE(one.shape, one.outs, one.bias, one.needed.defined());
    CHECK(worst_difference(joined(one), defined(one), inputs_of(one, at::kDouble)) < 1e-10);
    CHECK(worst_difference(joined(one), defined(one), inputs_of(one, at::kFloat)) < 5e-5);
  }
}

TEST_CASE("linear maps of a norm they make themselves have the bits of both operators, and are one") {
  for (const NormedCase& one : cases())
    for (const bool bf16 : {false, true}) {
      CAPTURE(one.shape, one.outs, one.bias, one.needed.defined(), bf16);
      const AutocastScope autocast(at::kCPU, bf16 ? std::optional(at::kBFloat16) : std::nullopt);
      const Tensors inputs = inputs_of(one, at::kFloat);
      const int64_t maps = fused_calls("linear"), norms = fused_calls("residual_norm");
      const Tensors got = run_with_gradients(joined(one), inputs);
      CHECK(fused_calls("linear") + fused_calls("residual_norm") == maps + norms);
      const Tensors meant = run_with_gradients(apart(one), inputs);
      // Outputs and the gradient of x; those of parameters are summed over other parts.
      for (size_t i = 0; i < got.size(); ++i) {
        INFO(i);
        if (i < one.outs.size() + 2) CHECK(at::equal(got[i], meant[i]));
        else CHECK(difference(got[i], meant[i]) < 2e-5);
      }
    }
}

TEST_CASE("linear maps of their own norm: any of the results may be without a gradient, and x may have no other use") {
  const NormedCase one{{2, 300, 16}, {8, 8, 8}};
  for (const std::vector<size_t>& used : std::vector<std::vector<size_t>>{{0}, {1, 3}, {3}, {0, 1, 2}}) {
    CAPTURE(used);
    const auto only = [&](const TensorFunction& run) {
      return TensorFunction([run, used](const Tensors& x) {
        const Tensors all = run(x);
        Tensors some;
        for (const size_t i : used) some.push_back(all[i]);
        return some;
      });
    };
    CHECK(worst_difference(only(joined(one)), only(defined(one)), inputs_of(one, at::kDouble)) < 1e-10);
  }
}

TEST_CASE("linear maps of their own norm: rows that nobody needs may be anything, and go past it as they are") {
  const at::Tensor needed = random_tensor("which", {3, 190}).gt(0);
  const NormedCase one{{3, 190, 24}, {24, 16}, true, needed};
  const auto without_past = [&](const Tensors& x) {
    Tensors results = joined(one)(x);
    results.pop_back();
    return results;
  };
  Tensors inputs = inputs_of(one, at::kFloat);
  const Tensors meant = run_with_gradients(without_past, inputs);
  inputs[0] = inputs[0].masked_fill(needed.logical_not().unsqueeze(-1), std::numeric_limits<double>::quiet_NaN());
  const Tensors got = run_with_gradients(without_past, inputs);
  REQUIRE(got.size() == meant.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    CHECK(at::equal(got[i], meant[i]));
  }
}

TEST_CASE("linear maps of their own norm count the products of the maps, and have the same bits on any threads") {
  const NormedCase one{{4, 900, 64}, {64, 64, 64}};
  const Tensors inputs = inputs_of(one, at::kFloat);
  const auto flops_of = [&](const TensorFunction& run) {
    const OpCounter counter;
    static_cast<void>(run_with_gradients(run, inputs));
    return counter.counts().flops;
  };
  CHECK(flops_of(joined(one)) == flops_of(apart(one)));
  CHECK(same_on_any_threads(joined(one), inputs));
}

TEST_CASE("linear maps of their own norm: --kernels=check holds both passes, reference and large maps go by parts") {
  {
    const PolicyScope policy(Policy::kCheck);
    for (const NormedCase& one : cases())
      for (const bool bf16 : {false, true}) {
        CAPTURE(one.shape, one.outs, one.needed.defined(), bf16);
        const AutocastScope autocast(at::kCPU, bf16 ? std::optional(at::kBFloat16) : std::nullopt);
        for (const at::Tensor& got : run_with_gradients(joined(one), inputs_of(one, at::kFloat)))
          CHECK(got.isfinite().all().item<bool>());
      }
  }
  {
    const PolicyScope policy(Policy::kReference);
    const NormedCase one{{2, 50, 16}, {8, 24}};
    const int64_t before = fused_calls("normed_linear");
    CHECK(worst_difference(joined(one), defined(one), inputs_of(one, at::kDouble)) < 1e-10);
    CHECK(fused_calls("normed_linear") == before);
  }
  const NormedCase large{{2, 2048}, {2048}};
  CHECK(worst_difference(joined(large), defined(large), inputs_of(large, at::kDouble)) < 1e-10);
}

}  // namespace xformer::kernels
