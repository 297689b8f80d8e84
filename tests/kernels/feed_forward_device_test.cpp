// Feed-forward parts as a device computes them, walked on the CPU, against the definition in double precision.
#include "kernels/feed_forward/feed_forward.h"

#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/device/occupancy.h"
#include "kernels/feed_forward/device.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::feed_forward_device_test {

namespace {

struct WalkedPart {
  std::vector<int64_t> rows{2, 20};
  int64_t m = 16, f = 24, k = 16;
  double p = 0.2;
  bool tanh = false, tf32 = false, x_wanted = true;
  at::ScalarType x = at::kFloat, stored = at::kFloat;  // the second: of what lies inside, the result and its gradient
  at::Tensor needed = {};                              // [rows]
};

struct PartTensors {
  at::Tensor x, gradient;
  LinearMap in, out;

  explicit PartTensors(const WalkedPart& one)
      : in{random_tensor("in", {one.f, one.m}, at::kFloat), random_tensor("in bias", {one.f}, at::kFloat)},
        out{random_tensor("out", {one.k, one.f}, at::kFloat), random_tensor("out bias", {one.k}, at::kFloat)} {
    std::vector<int64_t> shape = one.rows;
    shape.push_back(one.m);
    x = random_tensor("x", shape, at::kFloat).to(one.x);
    shape.back() = one.k;
    gradient = random_tensor("gradient", shape, at::kFloat).to(one.stored);
  }
};

template <class Walk>
FeedForwardForward walked_forward(const WalkedPart& one, const PartTensors& given, const Walk& walked) {
  const AutocastScope autocast(at::kCPU, one.stored == at::kFloat ? std::nullopt : std::optional(one.stored));
  return feed_forward_forward_device(
      given.x, given.in, given.out, one.tanh, place_of(one.p), one.needed,
      [&](const FeedForwardArguments& a) { run_feed_forward<WalkedTypes>(a, /*backward=*/false, walked); });
}

// The result, then gradients of the maps and, if wanted, of x.
template <class Walk>
Tensors walked_part(const WalkedPart& one, const PartTensors& given, const Walk& walked) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const FeedForwardForward made = walked_forward(one, given, walked);
  CHECK((made.out.scalar_type() == one.stored && made.z.scalar_type() == one.stored));
  const FeedForwardGradients found = feed_forward_backward_device(
      given.gradient, given.x, made.z, given.in, given.out, one.tanh, place_of(one.p), one.needed, one.x_wanted,
      [&](const FeedForwardArguments& a) { run_feed_forward<WalkedTypes>(a, /*backward=*/true, walked); },
      [&](const WeightGradientArguments& a) { run_weight_gradients<WalkedTypes>(a, walked); });
  at::globalContext().setAllowTF32CuBLAS(false);
  Tensors result{made.out, found.in.weight, found.in.bias, found.out.weight, found.out.bias};
  if (one.x_wanted) {
    CHECK(found.x.scalar_type() == one.x);
    result.push_back(found.x);
  }
  return result;
}

// Of factors as products take them: in the type of what is stored.
Tensors defined_part(const WalkedPart& one, const PartTensors& given) {
  const auto leaf = [](const at::Tensor& x) { return x.to(at::kDouble).detach().requires_grad_(true); };
  const auto factor = [&](const at::Tensor& x) { return leaf(x.to(one.stored)); };
  Tensors leaves{factor(given.in.weight), leaf(given.in.bias), factor(given.out.weight), leaf(given.out.bias),
                 factor(given.x)};
  const at::Tensor out = feed_forward_reference(leaves[4], {leaves[0], leaves[1]}, {leaves[2], leaves[3]}, one.tanh,
                                                place_of(one.p), one.needed);
  if (!one.x_wanted) leaves.pop_back();
  Tensors result = torch::autograd::grad({out}, leaves, {given.gradient.to(at::kDouble)});
  result.insert(result.begin(), out.detach());
  return result;
}

double worst_part(const WalkedPart& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  const PartTensors given(one);
  const Tensors meant = defined_part(one, given);
  lose_others(given.x, one.needed), lose_others(given.gradient, one.needed);
  return worst_walked([&](WalkOrder order) { return walked_part(one, given, walking(order)); }, meant, both_orders,
                      first);
}

constexpr double kLikeFloat = 5e-6, kLikeTf32 = 1e-2;

int counted_parts = 0, counted_sums = 0, told_of_rows = 0;

FeedForwardForward counted_part_forward(const at::Tensor& x, const LinearMap& in, const LinearMap& out, bool tanh,
                                        const DropoutPlace& drop, const at::Tensor& needed) {
  told_of_rows += needed.defined() ? 1 : 0;
  return feed_forward_forward_device(x, in, out, tanh, drop, needed,
                                     [](const FeedForwardArguments&) { ++counted_parts; });
}

FeedForwardGradients counted_part_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& z,
                                           const LinearMap& in, const LinearMap& out, bool tanh,
                                           const DropoutPlace& drop, const at::Tensor& needed, bool x_wanted) {
  told_of_rows += needed.defined() ? 1 : 0;
  return feed_forward_backward_device(
      gradient, x, z, in, out, tanh, drop, needed, x_wanted, [](const FeedForwardArguments&) { ++counted_parts; },
      [](const WeightGradientArguments&) { ++counted_sums; });
}

}  // namespace

TEST_CASE(
    "feed-forward parts on a device: every number of rows and every width from 1 to 130, near tiles' borders in two "
    "orders") {
  const PoisonedMemory poisoned;
  for (int64_t size = 1; size <= 130; ++size) {
    CAPTURE(size);
    const bool near = near_border(size);
    const WalkOrder first = order_at(size);
    CHECK(worst_part({.rows = {size}}, near, first) < kLikeFloat);
    CHECK(worst_part({.rows = {9}, .f = size}, near, first) < kLikeFloat);
    if (size > kFeedForwardWidest) continue;
    CHECK(worst_part({.rows = {9}, .m = size}, near, first) < kLikeFloat);
    CHECK(worst_part({.rows = {9}, .k = size}, near, first) < kLikeFloat);
  }
}

TEST_CASE("feed-forward parts on a device in 16 bits: rows, widths and what is stored so, in two orders") {
  const PoisonedMemory poisoned;
  for (const at::ScalarType half : {at::kHalf, at::kBFloat16}) {
    CAPTURE(half);
    // Roundings of weights, of what lies inside and of the result.
    const double bound = half == at::kHalf ? kLikeTf32 : 3e-2;
    for (int64_t size = 1; size <= 130; ++size) {
      if (!near_border(size)) continue;
      CAPTURE(size);
      for (const at::ScalarType x : {at::kFloat, half}) {
        // But where runs of eight and tiles end, kinds of rows take turns.
        if ((size + 1) % 8 > 2 && (x == half) != (size % 2 == 0)) continue;
        CHECK(worst_part({.rows = {size}, .x = x, .stored = half}, true) < bound);
        CHECK(worst_part({.rows = {9}, .f = size, .x = x, .stored = half}, true) < bound);
        if (size > kFeedForwardWidest) continue;
        CHECK(worst_part({.rows = {9}, .m = size, .x = x, .stored = half}, true) < bound);
        CHECK(worst_part({.rows = {9}, .k = size, .x = x, .stored = half}, true) < bound);
      }
    }
    CHECK(worst_part({.rows = {130}, .m = 64, .f = 128, .k = 64, .tanh = true, .stored = half}, true) < bound);
    CHECK(worst_part({.x_wanted = false, .stored = half}, true) < bound);
  }
}

TEST_CASE("feed-forward parts on a device: both forms, wide ones, dropout and gradients, in two orders") {
  const PoisonedMemory poisoned;
  CHECK(worst_part({.rows = {130}, .m = 64, .f = 128, .k = 64}, true) < kLikeFloat);
  CHECK(worst_part({.rows = {2, 35}, .m = 128, .f = 200, .k = 100}, true) < kLikeFloat);
  CHECK(worst_part({.m = 100, .f = 70, .k = 128, .tanh = true}, true) < kLikeFloat);
  CHECK(worst_part({.tanh = true}, true) < kLikeFloat);
  CHECK(worst_part({.p = 0}, true) < kLikeFloat);
  CHECK(worst_part({.x_wanted = false}, true) < kLikeFloat);
  CHECK(worst_part({.rows = {}}, true) < kLikeFloat);  // one row, of which its width is the only axis
  CHECK(worst_part({.m = 64, .f = 64, .k = 64, .tf32 = true}, true) < kLikeTf32);
  // TF32 is not float: the bound of one would catch the other.
  CHECK(worst_part({.m = 64, .f = 64, .k = 64, .tf32 = true}) > 10 * kLikeFloat);
}

TEST_CASE("feed-forward parts on a device: rows that nobody needs are zeros, whatever stands and arrives there") {
  const PoisonedMemory poisoned;
  for (const at::Tensor& needed : needed_cases(200)) {
    CAPTURE(needed);
    CHECK(worst_part({.rows = {200}, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_part({.rows = {2, 100}, .m = 70, .f = 70, .k = 100, .needed = needed.view({2, 100})}, true) <
          kLikeFloat);
    CHECK(worst_part({.rows = {200}, .m = 13, .k = 9, .tanh = true, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_part({.rows = {200}, .x_wanted = false, .needed = needed}, true) < kLikeFloat);
    CHECK(worst_part({.rows = {200}, .p = 0, .tf32 = true, .needed = needed}, true) < kLikeTf32);
    for (const at::ScalarType half : {at::kHalf, at::kBFloat16})
      for (const at::ScalarType x : {at::kFloat, half})
        CHECK(worst_part({.rows = {200}, .x = x, .stored = half, .needed = needed}, true) <
              (half == at::kHalf ? kLikeTf32 : 3e-2));
  }
}

TEST_CASE("feed-forward parts on a device make products of tiles, and of half tiles for weights, with a needed row") {
  check_products_of_tiles([](int64_t rows, const at::Tensor& needed) {
    const WalkedPart one{.rows = {rows}, .needed = needed};
    int64_t all = 0;
    static_cast<void>(walked_part(one, PartTensors(one), counting(all)));
    return all;
  });
}

TEST_CASE("feed-forward parts on a device drop the activations that the CPU drops") {
  const WalkedPart one{.rows = {3, 30}, .m = 10, .f = 77, .k = 77};
  PartTensors given(one);
  given.in.bias.fill_(100);  // far from where an activation is zero by itself
  given.out = {at::eye(77), at::zeros({77})};
  const at::Tensor got = walked_forward(one, given, walking(WalkOrder::kForward)).out;
  const at::Tensor here = feed_forward_forward_cpu(given.x, given.in, given.out, one.tanh, place_of(one.p), {}).out;
  CHECK(at::equal(got == 0, here == 0));
  CHECK((here == 0).sum().item<int64_t>() > 0);
}

TEST_CASE("feed-forward parts on a device: a row that is lost loses no other") {
  const WalkedPart one{.rows = {80}, .m = 70};
  const PartTensors clean(one), lost(one);
  lost.x[3].fill_(NAN);
  const at::Tensor meant = walked_forward(one, clean, walking(WalkOrder::kForward)).out,
                   got = walked_forward(one, lost, walking(WalkOrder::kForward)).out;
  CHECK(at::equal(got.narrow(0, 4, 76), meant.narrow(0, 4, 76)));
  CHECK(at::equal(got.narrow(0, 0, 3), meant.narrow(0, 0, 3)));
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of feed-forward parts runs them: one launch forwards, two backwards") {
  counted_parts = counted_sums = told_of_rows = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("feed_forward_forward", dispatched<counted_part_forward>);
  library.impl("feed_forward_backward", dispatched<counted_part_backward>);
  DropoutPlace place = place_of(0.1);
  place.state = place.state.to(at::kMeta);
  const auto run_part = [&](at::ScalarType type, int64_t m, const DropoutPlace& drop) {
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const Tensors inputs{leaf({4, 10, m}), leaf({96, m}), leaf({96}), leaf({m, 96}), leaf({m})};
    const OpCounter counter;
    const at::Tensor out = feed_forward(inputs[0], {inputs[1], inputs[2]}, {inputs[3], inputs[4]}, false, drop);
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    CHECK(counter.counts().flops == 3 * 2 * 40 * 2 * 96 * m);
    return std::pair(std::exchange(counted_parts, 0), std::exchange(counted_sums, 0));
  };
  CHECK(run_part(at::kFloat, kFeedForwardWidest, place) == std::pair(2, 1));
  CHECK(run_part(at::kFloat, kFeedForwardWidest + 8, {}) == std::pair(0, 0));
  CHECK(run_part(at::kDouble, 64, {}) == std::pair(0, 0));

  const auto options = at::TensorOptions(at::kMeta).dtype(at::kFloat);
  const LinearMap in{at::empty({96, 64}, options), at::empty({96}, options)},
      out{at::empty({64, 96}, options), at::empty({64}, options)};
  const at::Tensor x = at::empty({4, 10, 64}, options).requires_grad_(true);
  const at::Tensor made = feed_forward(x, in, out, false, {}, at::empty({4, 10}, options.dtype(at::kBool)));
  static_cast<void>(torch::autograd::grad({made}, {x}, {at::ones_like(made)}));
  CHECK(told_of_rows == 2);
}

TEST_CASE("plans of feed-forward parts fit a device at any size") {
  constexpr auto fits = [](int64_t rows) {
    using Program = FeedForwardProgram<ProductKind::kFloat, kTileSide, false, float>;
    const LaunchGrid grid = feed_forward_grid(rows);
    return launch_fits<Program>(grid) && is_division(grid.blocks, kTileSide, rows) &&
           resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) >= 2 &&
           resident_blocks(kSm90, Program::kThreads, 1, grid.shared_bytes) >= 3;
  };
  STATIC_REQUIRE((fits(1) && fits(64) && fits(65) && fits(int64_t{1} << 31) && fits(int64_t{1} << 35)));
  STATIC_REQUIRE(fits(kTileSide * kMostBlocks));
  STATIC_REQUIRE(feed_forward_grid(kTileSide * kMostBlocks + 1).blocks == kMostBlocks + 1);  // refused
}

}  // namespace xformer::kernels::feed_forward_device_test
