// Branches with their residual and norm as a device computes them, walked on the CPU, against the definition in double
// precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/branch/branch.h"
#include "kernels/branch/device.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/needed.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::branch_device_test {

namespace {

struct WalkedBranch {
  std::vector<int64_t> rows{2, 20};
  int64_t k = 24, f = 0, m = 16;  // f: of a feed-forward part; 0: there is none
  double p = 0.2;
  bool norm = true, bias = true, tf32 = false;
  bool norm_used = true;  // the normed rows have a gradient
  int64_t shift = 0;      // elements by which x begins behind an aligned place
  // Of the rows of a map, or of what lies inside a feed-forward part.
  at::ScalarType stored = at::kFloat;
  at::Tensor needed = {};  // [rows]
};

struct BranchTensors {
  at::Tensor x, sum_gradient, normed_gradient;
  Branch branch;
  NormWeights norm;

  explicit BranchTensors(const WalkedBranch& one) {
    const auto rows_of = [&](const std::string& name, int64_t width, int64_t shift) {
      std::vector<int64_t> shape = one.rows;
      shape.push_back(width);
      int64_t count = 1;
      for (const int64_t side : shape) count *= side;
      return random_tensor(name, {count + shift}, at::kFloat).narrow(0, shift, count).view(shape);
    };
    const auto map_of = [&](const std::string& name, int64_t in, int64_t out) {
      return LinearMap{random_tensor(name, {out, in}, at::kFloat),
                       one.bias ? random_tensor(name + " bias", {out}, at::kFloat) : at::Tensor()};
    };
    x = rows_of("x", one.m, one.shift);
    sum_gradient = rows_of("sum gradient", one.m, 0), normed_gradient = rows_of("normed gradient", one.m, 0);
    branch.rows = rows_of("rows", one.k, 0).to(one.f > 0 ? at::kFloat : one.stored);
    branch.out = map_of("out", one.f > 0 ? one.f : one.k, one.m);
    if (one.f > 0) branch.in = map_of("in", one.k, one.f), branch.drop = place_of(one.p), branch.drop.site += 1;
    branch.needed = one.needed;
    if (one.norm) norm = {random_tensor("weight", {one.m}, at::kFloat), random_tensor("bias", {one.m}, at::kFloat)};
  }
  // A sum without a norm has all rows of x, and so its gradient.
  void lose(const WalkedBranch& one) const {
    lose_others(branch.rows, one.needed);
    if (!one.norm) return;
    for (const at::Tensor& rows : {x, sum_gradient, normed_gradient}) lose_others(rows, one.needed);
  }
  // Those that are there.
  [[nodiscard]] Tensors inputs(bool with_norm) const {
    Tensors all{x, branch.rows, branch.out.weight, branch.out.bias, branch.in.weight, branch.in.bias};
    if (with_norm) all.insert(all.end(), {norm.weight, norm.bias});
    std::erase_if(all, [](const at::Tensor& one) { return !one.defined(); });
    return all;
  }
};

template <class Walk>
BranchForward walked_forward(const WalkedBranch& one, const BranchTensors& given, const Walk& walked) {
  const AutocastScope autocast(at::kCPU, one.stored == at::kFloat ? std::nullopt : std::optional(one.stored));
  return branch_forward_device(
      given.x, given.branch, place_of(one.p), given.norm,
      [&](const LinearBranchArguments& a) { run_linear_branch<WalkedTypes>(a, walked); },
      [&](const FeedForwardArguments& a) { run_feed_forward<WalkedTypes>(a, /*backward=*/false, walked); });
}

// The sum and the normed rows, then gradients.
template <class Walk>
Tensors walked_branch(const WalkedBranch& one, const Walk& walked) {
  const BranchTensors given(one);
  given.lose(one);
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const BranchForward made = walked_forward(one, given, walked);
  const BranchGradients found = branch_backward_device(
      given.sum_gradient, one.norm && one.norm_used ? given.normed_gradient : at::Tensor(), made, given.branch,
      place_of(one.p), given.norm.weight, [&](const ResidualNormBackwardArguments& a) { run_row_backward(a, walked); },
      [&](const LinearArguments& a) { run_linear<WalkedTypes>(a, /*backward=*/true, walked); },
      [&](const FeedForwardArguments& a) { run_feed_forward<WalkedTypes>(a, /*backward=*/true, walked); },
      [&](const WeightGradientArguments& a) { run_weight_gradients<WalkedTypes>(a, walked); });
  at::globalContext().setAllowTF32CuBLAS(false);
  CHECK((made.norm.sum.scalar_type() == at::kFloat && found.rows.scalar_type() == given.branch.rows.scalar_type()));
  if (one.f > 0) CHECK(made.z.scalar_type() == one.stored);
  Tensors result{made.norm.sum, one.norm_used ? made.norm.normed : at::Tensor()};
  for (const at::Tensor& gradient : tensors_of(found)) result.push_back(gradient);
  std::erase_if(result, [](const at::Tensor& tensor) { return !tensor.defined(); });
  return result;
}

Tensors defined_branch(const WalkedBranch& one) {
  const BranchTensors given(one);
  const auto definition = [&](const Tensors& leaves) -> Tensors {
    size_t next = 0;
    const auto take = [&](const at::Tensor& like) { return like.defined() ? leaves[next++] : at::Tensor(); };
    const auto take_map = [&](const LinearMap& like) {
      LinearMap map;
      map.weight = take(like.weight), map.bias = take(like.bias);
      return map;
    };
    const at::Tensor x = take(given.x), rows = take(given.branch.rows);
    const LinearMap out = take_map(given.branch.out), in = take_map(given.branch.in);
    const at::Tensor end = needed_alone(one.f > 0 ? feed_forward_reference(rows, in, out, false, given.branch.drop)
                                                  : at::linear(rows, out.weight, out.bias),
                                        one.needed);
    if (!one.norm) return {x + place_of(one.p)(end)};
    if (!one.norm_used) return {needed_alone(x + place_of(one.p)(end), one.needed)};
    const at::Tensor weight = take(given.norm.weight), bias = take(given.norm.bias);
    const ResidualNorm meant = residual_norm_reference(x, end, place_of(one.p), {weight, bias}, one.needed);
    return {meant.sum, meant.normed};
  };
  Tensors gradients{given.sum_gradient};
  if (one.norm && one.norm_used) gradients.push_back(given.normed_gradient);
  return in_double(definition, given.inputs(one.norm && one.norm_used), gradients);
}

double worst_branch(const WalkedBranch& one) {
  return worst_walked([&](WalkOrder order) { return walked_branch(one, walking(order)); }, defined_branch(one));
}

constexpr double kLikeFloat = 2e-5, kLikeTf32 = 2e-2;

int counted_launches = 0, told_of_rows = 0;

BranchForward counted_forward(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop,
                              const NormWeights& norm) {
  told_of_rows += branch.needed.defined() ? 1 : 0;
  const auto count = [](const auto&) { ++counted_launches; };
  return branch_forward_device(x, branch, drop, norm, count, count);
}

BranchGradients counted_backward(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                 const BranchForward& made, const Branch& branch, const DropoutPlace& drop,
                                 const at::Tensor& weight) {
  told_of_rows += branch.needed.defined() ? 1 : 0;
  const auto count = [](const auto&) { ++counted_launches; };
  return branch_backward_device(sum_gradient, normed_gradient, made, branch, drop, weight, count, count, count, count);
}

}  // namespace

TEST_CASE("branches on a device: every number of rows and every width") {
  const PoisonedMemory poisoned;
  for (int64_t size = 1; size <= 130; ++size) {
    CAPTURE(size);
    CHECK(worst_branch({.rows = {size}}) < kLikeFloat);
    CHECK(worst_branch({.rows = {9}, .k = size}) < kLikeFloat);
    if (size > kWidestEpilogue) continue;
    // In rows of one element everything cancels but rounding.
    CHECK(worst_branch({.rows = {9}, .m = size}) < (size == 1 ? 1e-3 : kLikeFloat));
    CHECK(worst_branch({.rows = {9}, .f = 20, .m = size, .norm = false}) < kLikeFloat);
  }
}

TEST_CASE("branches on a device: maps and parts, with and without norm, bias and dropout") {
  const PoisonedMemory poisoned;
  for (const int64_t f : {0, 70}) {
    CAPTURE(f);
    CHECK(worst_branch({.rows = {130}, .k = 64, .f = f, .m = 64}) < kLikeFloat);
    CHECK(worst_branch({.rows = {2, 35}, .k = 100, .f = f, .m = 128}) < kLikeFloat);
    CHECK(worst_branch({.f = f, .m = 100, .norm = false}) < kLikeFloat);
    CHECK(worst_branch({.f = f, .p = 0}) < kLikeFloat);
    CHECK(worst_branch({.f = f, .p = 0, .norm = false}) < kLikeFloat);
    CHECK(worst_branch({.f = f, .shift = 1}) < kLikeFloat);
    CHECK(worst_branch({.k = 64, .f = f, .m = 64, .tf32 = true}) < kLikeTf32);
    // TF32 is not float: the bound of one would catch the other.
    CHECK(worst_branch({.k = 64, .f = f, .m = 64, .tf32 = true}) > 10 * kLikeFloat);
  }
  CHECK(worst_branch({.bias = false}) < kLikeFloat);
  CHECK(worst_branch({.rows = {20}, .k = 300}) < kLikeFloat);
}

TEST_CASE("branches on a device whose rows, or what lies inside, are stored in 16 bits") {
  const PoisonedMemory poisoned;
  for (const at::ScalarType half : {at::kHalf, at::kBFloat16}) {
    CAPTURE(half);
    for (const int64_t f : {0, 70}) {
      CAPTURE(f);
      // Roundings of weights, of what lies inside and of the gradient of the rows.
      const double bound = half == at::kHalf ? kLikeTf32 : f == 0 ? kLikeTf32 : 4e-2;
      for (int64_t size = 1; size <= 130; ++size) {
        // Near tiles' borders. But where tiles and runs of eight end, maps and parts take turns.
        if (!near_border(size) || ((size + 1) % 8 > 2 && (f == 0) != (size % 2 == 0))) continue;
        CAPTURE(size);
        CHECK(worst_branch({.rows = {size}, .f = f, .stored = half}) < bound);
        if (f == 0 || size <= kFeedForwardWidest)
          CHECK(worst_branch({.rows = {9}, .k = size, .f = f, .stored = half}) < bound);
        if (size <= kWidestEpilogue)
          CHECK(worst_branch({.rows = {9}, .f = f, .m = size, .norm = false, .stored = half}) < bound);
      }
      CHECK(worst_branch({.rows = {130}, .k = 64, .f = f, .m = 64, .stored = half}) < bound);
      CHECK(worst_branch({.f = f, .p = 0, .stored = half}) < bound);
      CHECK(worst_branch({.f = f, .shift = 1, .stored = half}) < bound);
    }
  }
}

TEST_CASE("branches on a device: rows that nobody needs have no branch and no norm, whatever stands or arrives there") {
  const PoisonedMemory poisoned;
  for (const at::Tensor& needed : needed_cases(200)) {
    CAPTURE(needed);
    for (const int64_t f : {0, 70}) {
      CAPTURE(f);
      for (const bool norm : {true, false}) {
        CAPTURE(norm);
        CHECK(worst_branch({.rows = {200}, .f = f, .norm = norm, .needed = needed}) < kLikeFloat);
        CHECK(
            worst_branch({.rows = {2, 100}, .k = 70, .f = f, .m = 100, .norm = norm, .needed = needed.view({2, 100})}) <
            kLikeFloat);
        CHECK(worst_branch({.rows = {200}, .f = f, .m = 13, .p = 0, .norm = norm, .shift = 1, .needed = needed}) <
              kLikeFloat);
        CHECK(worst_branch({.rows = {200}, .f = f, .norm = norm, .tf32 = true, .needed = needed}) < kLikeTf32);
        for (const at::ScalarType half : {at::kHalf, at::kBFloat16})
          CHECK(worst_branch({.rows = {200}, .f = f, .norm = norm, .stored = half, .needed = needed}) < 4e-2);
      }
      CHECK(worst_branch({.rows = {200}, .f = f, .norm_used = false, .needed = needed}) < kLikeFloat);
    }
  }
  CHECK(worst_branch({.norm_used = false}) < kLikeFloat);
}

TEST_CASE("branches on a device make products of tiles, and of half tiles for weights, with a needed row") {
  for (const int64_t f : {0, 70}) {
    check_products_of_tiles([f](int64_t rows, const at::Tensor& needed) {
      int64_t all = 0;
      static_cast<void>(walked_branch({.rows = {rows}, .f = f, .needed = needed}, counting(all)));
      return all;
    });
  }
}

TEST_CASE("branches on a device: a row that is lost loses no other") {
  for (const int64_t f : {0, 70}) {
    const WalkedBranch one{.rows = {80}, .f = f, .m = 70};
    const BranchTensors clean(one), lost(one);
    lost.branch.rows[3].fill_(float_of(0x7FFFFFFF));  // what a device makes of 0 / 0
    const ResidualNormForward meant = walked_forward(one, clean, walking(WalkOrder::kForward)).norm,
                              got = walked_forward(one, lost, walking(WalkOrder::kForward)).norm;
    for (const auto& [a, b] : {std::pair{got.sum, meant.sum}, {got.normed, meant.normed}}) {
      CHECK(at::equal(a.narrow(0, 4, 76), b.narrow(0, 4, 76)));
      CHECK(at::equal(a.narrow(0, 0, 3), b.narrow(0, 0, 3)));
    }
    CHECK(got.normed[3].isnan().all().item<bool>());
  }
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of branches runs them: one launch forwards") {
  counted_launches = told_of_rows = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("branch_forward", dispatched<counted_forward>);
  library.impl("branch_backward", dispatched<counted_backward>);
  const auto run_branch = [&](at::ScalarType type, int64_t m, bool part, bool norm) {
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const Branch branch{leaf({4, 10, 32}),
                        {leaf({m, part ? 96 : 32}), leaf({m})},
                        part ? LinearMap{leaf({96, 32}), leaf({96})} : LinearMap()};
    const at::Tensor x = leaf({4, 10, m});
    const NormWeights weights{leaf({m}), leaf({m})};
    const OpCounter counter;
    Tensors results{norm ? at::Tensor() : add_branch(x, branch, {})}, wanted{x, branch.rows, branch.out.weight};
    if (norm) {
      const ResidualNorm both = branch_norm(x, branch, {}, weights);
      results = {both.sum, both.normed};
      wanted.push_back(weights.bias);
    }
    if (part) wanted.insert(wanted.end(), {branch.in.weight, branch.in.bias});
    Tensors slopes;
    for (const at::Tensor& result : results) slopes.push_back(at::ones_like(result));
    const Tensors found = torch::autograd::grad(results, wanted, slopes);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == wanted[i].sizes());
    CHECK(counter.counts().flops == 3 * 2 * 40 * (part ? 96 * (32 + m) : 32 * m));
    return std::exchange(counted_launches, 0);
  };
  CHECK(run_branch(at::kFloat, kWidestEpilogue, false, true) == 1 + 3);
  CHECK(run_branch(at::kFloat, 64, false, false) == 1 + 2);
  CHECK(run_branch(at::kFloat, 64, true, true) == 1 + 3);
  CHECK(run_branch(at::kFloat, 64, true, false) == 1 + 2);
  CHECK(run_branch(at::kFloat, kWidestEpilogue + 8, false, false) == 0);
  CHECK(run_branch(at::kDouble, 64, true, false) == 0);

  const auto options = at::TensorOptions(at::kMeta).dtype(at::kFloat);
  const at::Tensor x = at::empty({4, 10, 64}, options).requires_grad_(true);
  Branch branch{at::empty({4, 10, 32}, options), {at::empty({64, 32}, options), {}}};
  branch.needed = at::empty({4, 10}, options.dtype(at::kBool));
  const at::Tensor sum = add_branch(x, branch, {});
  static_cast<void>(torch::autograd::grad({sum}, {x}, {at::ones_like(sum)}));
  CHECK(told_of_rows == 2);
}

// Here a branch is made first; its meaning is the composition of both operators.
TEST_CASE("branches on a CPU are their residual and norm") {
  for (const int64_t f : {0, 70}) {
    const BranchTensors given({.f = f});
    const at::Tensor made = given.branch.made();
    const ResidualNorm got = branch_norm(given.x, given.branch, place_of(0.2), given.norm),
                       meant = residual_norm(given.x, made, place_of(0.2), given.norm);
    CHECK((at::equal(got.sum, meant.sum) && at::equal(got.normed, meant.normed)));
    CHECK(at::equal(add_branch(given.x, given.branch, place_of(0.2)), meant.sum));
  }
  const BranchTensors given({});
  CHECK(at::equal(branch_norm(given.x, {}, {}, given.norm).sum, given.x));
}

TEST_CASE("plans of branches fit a device at any size") {
  constexpr auto fits = [](int64_t rows) {
    using Program = LinearBranchProgram<ProductKind::kFloat, 1, float>;
    const LaunchGrid grid = linear_branch_grid(rows);
    return launch_fits<Program>(grid) && is_division(grid.blocks, kTileSide, rows) &&
           resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) >= Program::kResident;
  };
  STATIC_REQUIRE((fits(1) && fits(64) && fits(65) && fits(int64_t{1} << 31) && fits(int64_t{1} << 35)));
  STATIC_REQUIRE(fits(kTileSide * kMostBlocks));
  // One row more is a block more than there can be, as which it is counted, and refused.
  STATIC_REQUIRE(linear_branch_grid(kTileSide * kMostBlocks + 1).blocks == kMostBlocks + 1);
}

}  // namespace xformer::kernels::branch_device_test
