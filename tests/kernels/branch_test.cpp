// Branches that are added and normalised as they are made, against their definition and against the operators that
// they join: outputs and gradients, of a linear map and of a feed-forward part, with a norm behind the sum and without,
// and of a part that begins with a norm of what it is added to.
#include "kernels/branch/branch.h"

#include <ATen/Functions.h>

#include <limits>

#include "fused_support.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/fused.h"
#include "place_support.h"
#include "policy_scope.h"
#include "tensor/autocast.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct BranchCase {
  std::vector<int64_t> rows;                // all but the last dimension
  int64_t in = 16, hidden = 0, width = 24;  // hidden 0: a linear map
  bool bias = true, norm = true, tanh = false;
  double inside = 0, dropout = 0;
  at::Tensor needed = {};
  bool before = false;  // a part of x itself, normalised
};

std::vector<int64_t> with(std::vector<int64_t> rows, int64_t width) {
  rows.push_back(width);
  return rows;
}

// x, the branch's rows, its last map, its first one where it is a part, the norm.
Tensors inputs_of(const BranchCase& one, at::ScalarType type) {
  const auto tensor = [&](const char* name, at::IntArrayRef shape) { return random_tensor(name, shape, type); };
  const int64_t wide = one.hidden > 0 ? one.hidden : one.in;
  const at::Tensor none;
  return {tensor("x", with(one.rows, one.width)),
          one.before ? none : tensor("rows", with(one.rows, one.in)),
          tensor("out", {one.width, wide}) / std::sqrt(static_cast<double>(wide)),
          one.bias ? tensor("out bias", {one.width}) : none,
          one.hidden > 0 ? tensor("in", {wide, one.in}) / std::sqrt(static_cast<double>(one.in)) : none,
          one.hidden > 0 ? tensor("in bias", {wide}) : none,
          one.norm || one.before ? tensor("weight", {one.width}) : none,
          one.norm || one.before ? tensor("bias", {one.width}) : none};
}

NormWeights norm_of(const Tensors& x) { return {x[6], x[7], 1e-4}; }
Branch branch_of(const BranchCase& one, const Tensors& x) {
  return {one.before ? x[0] : x[1],
          {x[2], x[3]},
          {x[4], x[5]},
          one.tanh,
          place_of(one.inside),
          one.needed,
          one.before ? norm_of(x) : NormWeights()};
}

TensorFunction joined(const BranchCase& one) {
  return [one](const Tensors& x) -> Tensors {
    if (!one.norm) return {add_branch(x[0], branch_of(one, x), place_of(one.dropout))};
    const ResidualNorm got = branch_norm(x[0], branch_of(one, x), place_of(one.dropout), norm_of(x));
    return {got.sum, got.normed};
  };
}
// The operators one behind the other.
TensorFunction apart(const BranchCase& one) {
  return [one](const Tensors& x) -> Tensors {
    if (one.before) {  // both gradients of x are added by the norm
      const ResidualNorm entry = residual_norm(x[0], {}, {}, norm_of(x), one.needed);
      Branch branch = branch_of(one, x);
      branch.rows = entry.normed, branch.norm = {};
      return {needed_alone(residual(entry.sum, branch.made(), place_of(one.dropout)), one.needed)};
    }
    const at::Tensor end = branch_of(one, x).made();
    if (!one.norm) return {residual(x[0], end, place_of(one.dropout))};
    const ResidualNorm got = residual_norm(x[0], end, place_of(one.dropout), norm_of(x), one.needed);
    return {got.sum, got.normed};
  };
}
TensorFunction defined(const BranchCase& one) {
  return [one](const Tensors& x) -> Tensors {
    const at::Tensor rows = one.before ? at::layer_norm(x[0], {one.width}, x[6], x[7], norm_of(x).epsilon) : x[1];
    const at::Tensor end = needed_alone(
        one.hidden > 0 ? feed_forward_reference(rows, {x[4], x[5]}, {x[2], x[3]}, one.tanh, place_of(one.inside))
                       : at::linear(rows, x[2], x[3]),
        one.needed);
    if (one.before) return {needed_alone(x[0] + place_of(one.dropout)(end), one.needed)};
    if (!one.norm) return {x[0] + place_of(one.dropout)(end)};
    const ResidualNorm meant = residual_norm_reference(x[0], end, place_of(one.dropout), norm_of(x), one.needed);
    return {meant.sum, meant.normed};
  };
}

std::vector<BranchCase> cases() {
  const at::Tensor scattered = random_tensor("which", {3, 190}).gt(0.5);
  at::Tensor beginnings = at::zeros({3, 190}, at::kBool);
  beginnings[0].fill_(true), beginnings[1].slice(0, 0, 70).fill_(true);
  std::vector<BranchCase> result;
  for (const int64_t hidden : {0, 40})
    for (const bool norm : {true, false}) {
      const auto add = [&](BranchCase one) {
        one.hidden = hidden, one.norm = norm;
        one.bias = one.bias || hidden > 0;  // a part has both
        result.push_back(one);
      };
      add({.rows = {1}, .width = 8});
      add({.rows = {3, 21}, .inside = 0.2, .dropout = 0.3});
      add({.rows = {5, 300}, .in = 32, .width = 40});
      add({.rows = {2, 700}, .in = 64, .width = 64, .bias = false, .tanh = true, .dropout = 0.1});
      add({.rows = {4, 333}, .in = 7, .width = 33, .inside = 0.4, .dropout = 0.1});
      for (const at::Tensor& needed : {scattered, beginnings, at::zeros({3, 190}, at::kBool)})
        add({.rows = {3, 190}, .inside = 0.1, .dropout = 0.2, .needed = needed});
    }
  for (BranchCase one : std::vector<BranchCase>(result)) {
    if (one.hidden == 0 || one.norm) continue;
    one.in = one.width, one.before = true;
    result.push_back(one);
  }
  return result;
}

std::string name_of(const BranchCase& one) {
  return std::to_string(one.rows.back()) + " rows, " + (one.hidden > 0 ? "part" : "map") + (one.norm ? ", norm" : "") +
         (one.before ? ", norm before" : "") + (one.needed.defined() ? ", some needed" : "");
}

}  // namespace

TEST_CASE("a branch added as it is made equals its definition, with gradients") {
  for (const BranchCase& one : cases()) {
    INFO(name_of(one));
    CHECK(worst_difference(joined(one), defined(one), inputs_of(one, at::kDouble)) < 1e-11);
    CHECK(worst_difference(joined(one), defined(one), inputs_of(one, at::kFloat)) < 2e-5);
  }
}

TEST_CASE("a branch added as it is made has the bits of its operators one behind the other") {
  for (const BranchCase& one : cases())
    for (const bool bf16 : {false, true}) {
      INFO(name_of(one) << (bf16 ? ", bf16" : ""));
      const AutocastScope autocast(at::kCPU, bf16 ? std::optional(at::kBFloat16) : std::nullopt);
      const Tensors inputs = inputs_of(one, at::kFloat);
      const Tensors got = run_with_gradients(joined(one), inputs), meant = run_with_gradients(apart(one), inputs);
      // Outputs, gradients of x and of the branch's rows; those of parameters are summed over other parts.
      const size_t same = (one.norm ? 2 : 1) + (one.before ? 1 : 2);
      for (size_t i = 0; i < got.size(); ++i) {
        INFO(i);
        if (i < same) CHECK(at::equal(got[i], meant[i]));
        else CHECK(difference(got[i], meant[i]) < 2e-5);
      }
    }
}

TEST_CASE("a branch is one operator, with the products of its maker and the same bits on any number of threads") {
  for (const int64_t hidden : {0, 128}) {
    const BranchCase one{.rows = {4, 900}, .in = 64, .hidden = hidden, .width = 64, .inside = 0.1, .dropout = 0.1};
    const Tensors inputs = inputs_of(one, at::kFloat);
    const auto flops_of = [&](const TensorFunction& run) {
      const OpCounter counter;
      static_cast<void>(run_with_gradients(run, inputs));
      return counter.counts().flops;
    };
    const auto calls = [](const char* name) { return calls_of(name).fused.at(0).load(); };
    const int64_t before = calls("branch"), maps = calls("linear"), parts = calls("feed_forward"),
                  norms = calls("residual_norm");
    const int64_t flops = flops_of(joined(one));
    CHECK(calls("branch") == before + 1);
    CHECK(calls("linear") + calls("feed_forward") + calls("residual_norm") == maps + parts + norms);
    CHECK(flops == flops_of(apart(one)));

    CHECK(same_on_any_threads(joined(one), inputs));
  }
}

TEST_CASE("of a branch with its norm either output may be without a gradient") {
  for (const size_t used : {0, 1})
    for (const int64_t hidden : {0, 40})
      for (const at::Tensor& needed : {at::Tensor(), random_tensor("which", {3, 90}).gt(0.5)}) {
        CAPTURE(used, hidden, needed.defined());
        const BranchCase one{.rows = {3, 90}, .hidden = hidden, .inside = 0.1, .dropout = 0.2, .needed = needed};
        const auto only = [used](const TensorFunction& run) {
          return TensorFunction([run, used](const Tensors& x) { return Tensors{run(x)[used]}; });
        };
        CHECK(worst_difference(only(joined(one)), only(defined(one)), inputs_of(one, at::kDouble)) < 1e-11);
      }
}

TEST_CASE("branches take tensors as they lie, and maps that are too large for a kernel as they did") {
  const BranchCase one{.rows = {3, 8}, .dropout = 0.1};
  Tensors inputs = inputs_of(one, at::kDouble);
  inputs[0] = random_tensor("x", {24, 8, 3}).transpose(0, 2);
  inputs[1] = random_tensor("rows", {3, 16, 8}).transpose(1, 2);
  inputs[2] = random_tensor("out", {16, 24}).t();
  inputs[6] = random_tensor("weight", {48}).slice(0, 0, 48, 2);
  CHECK(worst_difference(joined(one), defined(one), inputs) < 1e-11);
  const BranchCase large{.rows = {2}, .in = 2048, .width = 2048};
  CHECK(worst_difference(joined(large), defined(large), inputs_of(large, at::kDouble)) < 1e-11);
  const BranchCase part{.rows = {3, 5},
                        .in = 1040,
                        .hidden = 1040,
                        .width = 1040,
                        .norm = false,
                        .inside = 0.1,
                        .dropout = 0.2,
                        .needed = random_tensor("which", {3, 5}).gt(0),
                        .before = true};
  CHECK(worst_difference(joined(part), defined(part), inputs_of(part, at::kDouble)) < 1e-11);
  CHECK_FALSE(added_as_made(inputs_of(part, at::kDouble)[0], branch_of(part, inputs_of(part, at::kDouble))));
}

TEST_CASE("a branch that begins with a norm keeps nothing of it, and rows that nobody needs may be anything") {
  const at::Tensor needed = random_tensor("which", {3, 190}).gt(0);
  const BranchCase one{.rows = {3, 190},
                       .in = 24,
                       .hidden = 40,
                       .norm = false,
                       .inside = 0.1,
                       .dropout = 0.2,
                       .needed = needed,
                       .before = true};
  Tensors inputs = inputs_of(one, at::kFloat);
  const auto norms = [] { return calls_of("residual_norm").fused.at(0).load(); };
  const int64_t before = norms();
  const Tensors meant = run_with_gradients(joined(one), inputs);
  CHECK(norms() == before);
  inputs[0] = inputs[0].masked_fill(needed.logical_not().unsqueeze(-1), std::numeric_limits<double>::quiet_NaN());
  const Tensors got = run_with_gradients(joined(one), inputs);
  REQUIRE(got.size() == meant.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    CHECK(at::equal(got[i], meant[i]));
  }
}

TEST_CASE("a branch of other rows than those it is added to may begin with a norm as well") {
  const BranchCase one{.rows = {3, 21}, .in = 24, .hidden = 40, .norm = false, .before = true};
  const Tensors inputs = inputs_of(one, at::kDouble);
  const at::Tensor other = random_tensor("other", {3, 21, 24}, at::kDouble);
  Branch branch = branch_of(one, inputs);
  branch.rows = other;
  Tensors normed = inputs;
  normed[1] = residual_norm_reference(other, {}, {}, norm_of(inputs)).normed;
  BranchCase plain = one;
  plain.before = false;
  CHECK(difference(add_branch(inputs[0], branch, {}), joined(plain)(normed)[0]) < 1e-11);
}

TEST_CASE("--kernels=check holds branches against their operators, forwards and backwards") {
  const PolicyScope policy(Policy::kCheck);
  for (const BranchCase& one : cases()) {
    INFO(name_of(one));
    for (const bool bf16 : {false, true}) {
      const AutocastScope autocast(at::kCPU, bf16 ? std::optional(at::kBFloat16) : std::nullopt);
      for (const at::Tensor& got : run_with_gradients(joined(one), inputs_of(one, at::kFloat)))
        CHECK(got.isfinite().all().item<bool>());
    }
  }
}

}  // namespace xformer::kernels
