// Residual and norm in one pass against their definition: outputs and gradients, with and without a branch and dropout.
#include "kernels/residual_norm/residual_norm.h"

#include <ATen/Parallel.h>

#include "core/error.h"
#include "core/random.h"
#include "fused_support.h"
#include "kernels/policy.h"
#include "place_support.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct ResidualCase {
  std::vector<int64_t> shape;
  double dropout = 0;
  bool branch = true;
};

Tensors inputs_of(const ResidualCase& one, at::ScalarType type) {
  const int64_t width = one.shape.back();
  return {random_tensor("x", one.shape, type), one.branch ? random_tensor("branch", one.shape, type) : at::Tensor(),
          random_tensor("weight", {width}, type), random_tensor("bias", {width}, type)};
}

TensorFunction norm_operator(double p, bool reference) {
  return [p, reference](const Tensors& x) {
    const NormWeights norm{x[2], x[3], 1e-4};
    const ResidualNorm got = reference ? residual_norm_reference(x[0], x[1], place_of(p), norm)
                                       : residual_norm(x[0], x[1], place_of(p), norm);
    return Tensors{got.sum, got.normed};
  };
}

double difference_of(const ResidualCase& one, at::ScalarType type) {
  return worst_difference(norm_operator(one.dropout, false), norm_operator(one.dropout, true), inputs_of(one, type));
}

}  // namespace

TEST_CASE("residual and norm in one pass equal their definition, with gradients") {
  const std::vector<ResidualCase> cases = {
      {{1, 1, 1}},    {{2, 3, 64}, 0.3},   {{2, 3, 64}, 0, false}, {{3, 7, 5}, 0.1},
      {{5, 33}, 0.5}, {{2, 200, 16}, 0.1}, {{3, 100, 65}, 0.1},    {{2, 2, 5000}, 0.2},
      {{4, 500, 64}}, {{0, 4, 8}, 0.1},    {{1, 65, 17}, 0.25},    {{2, 31, 48}, 0, false},
  };
  for (const ResidualCase& one : cases) {
    CAPTURE(one.shape, one.dropout, one.branch);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
    // In rows of one element everything cancels but rounding.
    if (one.shape.back() > 1) CHECK(difference_of(one, at::kFloat) < 2e-5);
  }
}

TEST_CASE("residual and norm over random shapes") {
  Stream numbers(31);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(numbers.next_below(bound)); };
  for (int turn = 0; turn < 40; ++turn) {
    ResidualCase one{{1 + below(4), 1 + below(150), 2 + below(120)}};
    one.branch = below(4) > 0;
    one.dropout = below(2) == 0 ? 0.2 : 0;
    CAPTURE(one.shape, one.dropout, one.branch);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
  }
}

TEST_CASE("residual and norm: either output may be without a gradient") {
  for (const size_t used : {0, 1}) {
    const auto only = [used](const TensorFunction& run) {
      return TensorFunction([run, used](const Tensors& x) { return Tensors{run(x)[used]}; });
    };
    for (const bool branch : {true, false}) {
      if (!branch && used == 0) continue;  // x itself
      const Tensors inputs = inputs_of({{3, 40, 24}, 0.2, branch}, at::kDouble);
      CHECK(worst_difference(only(norm_operator(0.2, false)), only(norm_operator(0.2, true)), inputs) < 1e-11);
    }
  }
}

TEST_CASE("a residual alone drops its branch as dropout does") {
  for (const double p : {0.0, 0.3}) {
    const auto run = [p](const Tensors& x) { return Tensors{residual(x[0], x[1], place_of(p))}; };
    const auto reference = [p](const Tensors& x) { return Tensors{x[0] + place_of(p)(x[1])}; };
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const Tensors inputs{random_tensor("x", {3, 70, 9}, type), random_tensor("branch", {3, 70, 9}, type)};
      CHECK(worst_difference(run, reference, inputs) < 1e-6);
    }
  }
}

TEST_CASE("residual and norm take tensors as they lie") {
  const Tensors inputs{random_tensor("x", {8, 40, 3}).transpose(0, 2),
                       random_tensor("branch", {3, 8, 40}).transpose(1, 2),
                       random_tensor("weight", {16}).slice(0, 0, 16, 2), random_tensor("bias", {1}).expand({8})};
  CHECK(worst_difference(norm_operator(0.1, false), norm_operator(0.1, true), inputs) < 1e-11);
}

TEST_CASE("residual and norm give the same bits on any number of threads") {
  const Tensors inputs = inputs_of({{4, 1000, 64}, 0.1}, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = run_with_gradients(norm_operator(0.1, false), inputs);
  at::set_num_threads(5);
  const Tensors five = run_with_gradients(norm_operator(0.1, false), inputs);
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) CHECK(at::equal(one[i], five[i]));
}

TEST_CASE("residual and norm: NaN stays in its row") {
  Tensors inputs = inputs_of({{1, 5, 20}, 0}, at::kFloat);
  inputs[0][0][3][7] = NAN;
  const at::Tensor lost = norm_operator(0, false)(inputs)[1].isnan().all(-1).view({5});
  CHECK(lost.sum().item<int64_t>() == 1);
  CHECK(lost[3].item<bool>());
}

TEST_CASE("--kernels=check holds residual and norm against their definition, --kernels=reference runs that") {
  const Tensors inputs = inputs_of({{2, 50, 16}, 0.1}, at::kFloat),
                alone = inputs_of({{2, 50, 16}, 0, false}, at::kFloat);
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(run_with_gradients(norm_operator(0.1, false), inputs));
  CHECK_NOTHROW(run_with_gradients(norm_operator(0, false), alone));
  CHECK_NOTHROW(static_cast<void>(residual(inputs[0], inputs[1], place_of(0.1))));
  set_policy(Policy::kReference);
  const OpCounter counter;
  CHECK(at::equal(norm_operator(0, false)(alone)[1], norm_operator(0, true)(alone)[1]));
  set_policy(Policy::kAuto);
  CHECK(counter.counts().calls > 1);
}

}  // namespace xformer::kernels
