// Residual and norm as a device computes them, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/residual_norm/device.h"
#include "kernels/residual_norm/residual_norm.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::residual_norm_device_test {

namespace {

struct WalkedRows {
  int64_t width = 64, rows = 10;
  double p = 0.2;
  bool branch = true, norm = true, sum_gradient = true;
  at::ScalarType type = at::kFloat, branch_type = at::kFloat;
  int64_t shift = 0;       // elements by which x begins behind an aligned place
  at::Tensor needed = {};  // [rows]
};

at::Tensor shifted(const std::string& name, const WalkedRows& one, at::ScalarType type) {
  const at::Tensor flat = random_tensor(name, {one.rows * one.width + one.shift}, type);
  return flat.narrow(0, one.shift, one.rows * one.width).view({one.rows, one.width});
}

struct NormPasses {
  ResidualNormForward forward;
  ResidualNormGradients gradients;

  [[nodiscard]] Tensors all() const {
    Tensors result{forward.sum, gradients.x, gradients.branch};
    if (forward.normed.defined())
      for (const at::Tensor& one : {forward.normed, gradients.weight, gradients.bias}) result.push_back(one);
    return result;
  }
};

NormPasses walked(const WalkedRows& one, WalkOrder order) {
  const at::Tensor x = shifted("x", one, one.type);
  const at::Tensor branch = one.branch ? shifted("branch", one, one.branch_type) : at::Tensor();
  const NormWeights norm = one.norm ? NormWeights{random_tensor("weight", {one.width}, one.type),
                                                  random_tensor("bias", {one.width}, one.type), 1e-4}
                                    : NormWeights{};
  const at::Tensor dsum = one.sum_gradient ? shifted("dsum", one, one.type) : at::Tensor(),
                   dnormed = shifted("dnormed", one, one.type);
  for (const at::Tensor& rows : {x, branch, dnormed}) lose_others(rows, one.needed);
  if (one.branch) lose_others(dsum, one.needed);  // else it goes by
  const DropoutPlace place = place_of(one.p);
  NormPasses result;
  result.forward =
      residual_norm_forward_device(x, branch, place, norm, one.needed, [&](const ResidualNormForwardArguments& a) {
        choose_program<WalkedTypes>(
            a, [&](const auto& program) { walk(row_forward_grid(a.rows, a.width), program, order); });
      });
  if (!one.norm) return result;
  result.gradients = residual_norm_backward_device(
      dsum, dnormed, result.forward, one.branch, place, norm.weight, one.needed,
      [&](const ResidualNormBackwardArguments& a) {
        run_row_backward(a, [&](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); });
      });
  return result;
}

// The definition in double precision, from the same numbers.
NormPasses meant(const WalkedRows& one) {
  const auto leaf = [](const at::Tensor& x) { return x.to(at::kDouble).detach().requires_grad_(true); };
  const at::Tensor x = leaf(shifted("x", one, one.type)), branch = leaf(shifted("branch", one, one.branch_type));
  const at::Tensor weight = leaf(random_tensor("weight", {one.width}, one.type)),
                   bias = leaf(random_tensor("bias", {one.width}, one.type));
  const ResidualNorm got =
      residual_norm_reference(x, one.branch ? branch : at::Tensor(), place_of(one.p), {weight, bias, 1e-4}, one.needed);
  NormPasses result;
  if (one.branch || !one.needed.defined()) result.forward.sum = got.sum.detach();  // else x itself, whatever it is
  if (!one.norm) return result;
  result.forward.normed = got.normed.detach();
  const at::Tensor dsum = one.sum_gradient ? shifted("dsum", one, one.type).to(at::kDouble) : at::zeros_like(x);
  const auto found = torch::autograd::grad({got.sum, got.normed}, {x, weight, bias, branch},
                                           {dsum, shifted("dnormed", one, one.type).to(at::kDouble)}, {}, false,
                                           /*allow_unused=*/true);
  result.gradients = {found[0], one.branch ? found[3] : at::Tensor(), found[1], found[2]};
  return result;
}

double worst_of(const WalkedRows& one) {
  const NormPasses passes = walked(one, WalkOrder::kForward);
  if (one.norm && one.needed.defined())
    for (const at::Tensor& statistic : {passes.forward.mean, passes.forward.rstd})
      CHECK(statistic.flatten().masked_fill(one.needed.flatten(), 0).eq(0).all().item<bool>());
  const Tensors got = passes.all(), wanted = meant(one).all();
  const Tensors backwards = walked(one, WalkOrder::kBackward).all();
  REQUIRE(got.size() == wanted.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!wanted[i].defined()) continue;
    worst = std::max(worst, difference(got[i].to(at::kDouble), wanted[i]));
    CHECK(at::equal(got[i], backwards[i]));  // no matter who comes first
  }
  return worst;
}

int counted_forwards = 0, counted_backwards = 0, told_of_rows = 0;

ResidualNormForward counted_forward(const at::Tensor& x, const at::Tensor& branch, const DropoutPlace& drop,
                                    const NormWeights& norm, const at::Tensor& needed) {
  told_of_rows += needed.defined() ? 1 : 0;
  return residual_norm_forward_device(x, branch, drop, norm, needed,
                                      [](const ResidualNormForwardArguments&) { ++counted_forwards; });
}

ResidualNormGradients counted_backward(const at::Tensor& dsum, const at::Tensor& dnormed,
                                       const ResidualNormForward& made, bool has_branch, const DropoutPlace& drop,
                                       const at::Tensor& weight, const at::Tensor& needed) {
  told_of_rows += needed.defined() ? 1 : 0;
  return residual_norm_backward_device(dsum, dnormed, made, has_branch, drop, weight, needed,
                                       [](const ResidualNormBackwardArguments&) { ++counted_backwards; });
}

}  // namespace

TEST_CASE("residual and norm on a device: every width from 1 to 130, and those of other plans") {
  const PoisonedMemory poisoned;
  for (int64_t width = 1; width <= 130; ++width) {
    CAPTURE(width);
    // In rows of one element everything cancels but rounding.
    CHECK(worst_of({.width = width, .rows = 1 + width % 7}) < (width == 1 ? 1e-3 : 2e-5));
  }
  for (const int64_t width : {192, 256, 257, 384, 512, 513, 700}) {
    CAPTURE(width);
    CHECK(worst_of({.width = width, .rows = 5}) < 2e-5);
  }
}

TEST_CASE("residual and norm on a device: rows, types, with and without branch, dropout, norm and gradients") {
  const PoisonedMemory poisoned;
  for (const int64_t rows : {1, 2, 31, 33, 100, 700}) CHECK(worst_of({.width = 64, .rows = rows}) < 2e-5);
  CHECK(worst_of({.width = 16, .rows = 20000}) < 2e-5);  // more than the parts hold at once
  CHECK(worst_of({.branch = false}) < 2e-5);
  CHECK(worst_of({.p = 0}) < 2e-5);
  CHECK(worst_of({.norm = false}) < 1e-6);
  CHECK(worst_of({.sum_gradient = false}) < 2e-5);
  CHECK(worst_of({.shift = 1}) < 2e-5);
  for (const int64_t width : {5, 64, 130, 256, 300})
    CHECK(worst_of({.width = width, .type = at::kDouble, .branch_type = at::kDouble}) < 1e-12);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16})
    for (const int64_t width : {13, 64, 320}) CHECK(worst_of({.width = width, .branch_type = type}) < 2e-5);
}

TEST_CASE("residual and norm on a device: rows that nobody needs are zeros, whatever stands and arrives there") {
  const PoisonedMemory poisoned;
  const int64_t rows = 200;
  for (const at::Tensor& needed : needed_cases(rows)) {
    CAPTURE(needed);
    for (const int64_t width : {5, 64, 130, 300}) {
      CAPTURE(width);
      CHECK(worst_of({.width = width, .rows = rows, .needed = needed}) < 2e-5);
    }
    CHECK(worst_of({.rows = rows, .branch = false, .needed = needed}) < 2e-5);
    CHECK(worst_of({.rows = rows, .branch = false, .sum_gradient = false, .needed = needed}) < 2e-5);
    CHECK(worst_of({.rows = rows, .p = 0, .needed = needed}) < 2e-5);
    CHECK(worst_of({.rows = rows, .sum_gradient = false, .needed = needed}) < 2e-5);
    CHECK(worst_of({.rows = rows, .norm = false, .needed = needed}) < 1e-6);
    CHECK(worst_of({.rows = rows, .shift = 1, .needed = needed}) < 2e-5);
    CHECK(worst_of({.rows = rows, .type = at::kDouble, .branch_type = at::kDouble, .needed = needed}) < 1e-12);
    for (const at::ScalarType type : {at::kHalf, at::kBFloat16})
      CHECK(worst_of({.rows = rows, .branch_type = type, .needed = needed}) < 2e-5);
  }
  // Blocks that come to rows again, before or behind such as they leave out.
  const at::Tensor place = at::arange(4000);
  CHECK(worst_of({.width = 256, .rows = 4000, .needed = place.ge(300).logical_and(place.lt(3700))}) < 2e-5);
}

TEST_CASE("a device drops the elements that the CPU drops") {
  const WalkedRows one{.width = 13, .rows = 50};
  const at::Tensor kept = walked(one, WalkOrder::kForward).gradients.branch;
  const at::Tensor whole = walked(one, WalkOrder::kForward).gradients.x;
  CHECK(at::allclose(kept, dropout_reference(whole, one.p, place_of(one.p).state, place_of(one.p).site), 1e-6, 1e-7));
  CHECK((kept == 0).sum().item<int64_t>() > 0);
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of residual and norm runs them, of branches in 16 bits too") {
  counted_forwards = counted_backwards = told_of_rows = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("residual_norm_forward", dispatched<counted_forward>);
  library.impl("residual_norm_backward", dispatched<counted_backward>);
  library.impl("residual_forward", dispatched<counted_forward>);
  const auto leaf = [](at::IntArrayRef shape, at::ScalarType type) {
    return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
  };
  DropoutPlace place = place_of(0.1);
  place.state = place.state.to(at::kMeta);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = leaf({4, 10, 64}, at::kFloat), branch = leaf({4, 10, 64}, type);
    const NormWeights norm{leaf({64}, at::kFloat), leaf({64}, at::kFloat)};
    const ResidualNorm got = residual_norm(x, branch, place, norm);
    CHECK((got.sum.scalar_type() == at::kFloat && got.normed.scalar_type() == at::kFloat));
    const Tensors found = torch::autograd::grad({got.normed}, {x, branch, norm.weight}, {at::ones_like(got.normed)});
    CHECK((found[0].scalar_type() == at::kFloat && found[1].scalar_type() == type));
    CHECK(residual(x, branch, DropoutPlace()).scalar_type() == at::kFloat);
  }
  CHECK((counted_forwards == 6 && counted_backwards == 3));
  // Rows in 16 bits have no kernel there.
  const at::Tensor half = leaf({4, 64}, at::kHalf);
  CHECK(residual(half, half, DropoutPlace()).scalar_type() == at::kHalf);
  CHECK(counted_forwards == 6);

  // Whoever runs there is told which rows are needed.
  const NormWeights norm{leaf({64}, at::kFloat), leaf({64}, at::kFloat)};
  const at::Tensor x = leaf({4, 10, 64}, at::kFloat);
  const at::Tensor needed = at::empty({4, 10}, at::TensorOptions(at::kMeta).dtype(at::kBool));
  const ResidualNorm got = residual_norm(x, x, DropoutPlace(), norm, needed);
  static_cast<void>(torch::autograd::grad({got.normed}, {x}, {at::ones_like(got.normed)}));
  CHECK(told_of_rows == 2);
}

TEST_CASE("plans of rows fit a device at any size") {
  constexpr auto fits = [](int64_t rows, int64_t width) {
    const RowPlan plan = row_plan(width);
    const LaunchGrid forward = row_forward_grid(rows, width), backward = row_backward_grid(rows, width);
    return plan.lanes * plan.packs * kRun >= width && plan.rows * plan.lanes == kRowThreads &&
           launch_fits<ResidualNormForwardProgram<float, float, 2>>(forward) &&
           launch_fits<ResidualNormBackwardProgram<double, 1>>(backward) && backward.blocks <= kRowParts &&
           launch_fits<PartSumsProgram<32>>(part_sums_grid(2 * width, PartSumsProgram<32>::kThreads));
  };
  constexpr auto all = [fits] {
    for (const int64_t width : {int64_t{1}, int64_t{8}, int64_t{65}, int64_t{256}, widest_row(ElementType::kFloat)})
      for (const int64_t rows : {int64_t{1}, int64_t{1000}, int64_t{1} << 31, int64_t{1} << 45})
        if (!fits(rows, width)) return false;
    return true;
  };
  STATIC_REQUIRE(all());
}

}  // namespace xformer::kernels::residual_norm_device_test
