// Rolled rows as a device computes them, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/rolled_rows/device.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::rolled_rows_device_test {

namespace {

struct WalkedRolls {
  int64_t n = 40, e = 16;
  std::vector<int64_t> offsets{0, 1, 2, 4, 8, 16};
  bool residual = true, masked = true;

  [[nodiscard]] at::Tensor valid() const { return masked ? ragged_flags(3, n) : at::Tensor(); }
  [[nodiscard]] RolledRowsOptions options() const { return {offsets, residual, valid()}; }
  // v and w, then the gradient of the result.
  [[nodiscard]] Tensors operands() const {
    return {random_tensor("v", {3, n, e}, at::kFloat),
            random_tensor("w", {3, n, static_cast<int64_t>(offsets.size())}, at::kFloat),
            random_tensor("gradient", {3, n, e}, at::kFloat)};
  }
};

// The result, then gradients of v and w.
Tensors rolled(const WalkedRolls& one, const Tensors& given, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const RolledArguments& a) { run_rolled(a, backward, walking(order)); };
  };
  const at::Tensor out = rolled_forward_device(given[0], given[1], one.options(), launch(false));
  const RolledGradients found = rolled_backward_device(given[2], given[0], given[1], one.options(), launch(true));
  return {out, found.v, found.w};
}

double worst_roll(const WalkedRolls& one) {
  const Tensors given = one.operands();
  return worst_walked(
      [&](WalkOrder order) { return rolled(one, given, order); },
      in_double([&](const Tensors& in) { return Tensors{rolled_rows_reference(in[0], in[1], one.options())}; },
                {given[0], given[1]}, {given[2]}));
}

constexpr double kLikeFloat = 2e-6;

int counted_rolls = 0;

void count_roll(const RolledArguments&) { ++counted_rolls; }

at::Tensor counted_forward(const at::Tensor& v, const at::Tensor& w, const RolledRowsOptions& options) {
  return rolled_forward_device(v, w, options, count_roll);
}
RolledGradients counted_backward(const at::Tensor& gradient, const at::Tensor& v, const at::Tensor& w,
                                 const RolledRowsOptions& options) {
  return rolled_backward_device(gradient, v, w, options, count_roll);
}

}  // namespace

TEST_CASE("rolled rows on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    CHECK(worst_roll({.n = n, .e = 1 + n % 20, .masked = n % 3 > 0}) < kLikeFloat);
  }
}

TEST_CASE("rolled rows on a device: widths and links, back and over the end, with and without the row itself") {
  const PoisonedMemory poisoned;
  std::vector<int64_t> most;
  for (int64_t p = 0; p < kMostLinks; ++p) most.push_back(p * p - 100);
  for (const int64_t e : {1, 7, 8, 32, 33, 64, 256, 300, 520}) {
    CAPTURE(e);
    CHECK(worst_roll({.e = e}) < kLikeFloat);
  }
  for (const bool residual : {false, true})
    for (const bool masked : {false, true})
      for (const std::vector<int64_t>& offsets :
           {std::vector<int64_t>{0}, {0, 3, 6, -3, -6, 1000, -1000}, {40, -40, 39, 41}, most}) {
        CAPTURE(residual, masked, offsets.size());
        CHECK(worst_roll({.offsets = offsets, .residual = residual, .masked = masked}) < kLikeFloat);
      }
}

TEST_CASE("rolled rows on a device: of rows that are not valid v is read, and no gradient") {
  const PoisonedMemory poisoned;
  const WalkedRolls one{.n = 60};
  Tensors given = one.operands();
  const Tensors clean = rolled(one, given, WalkOrder::kForward);
  for (const size_t i : {1, 2}) given[i] = lost_padding(given[i], one.valid());
  const Tensors lost = rolled(one, given, WalkOrder::kForward);
  for (size_t i = 0; i < clean.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
  given[0] = lost_padding(given[0], one.valid());
  const Tensors broken = rolled(one, given, WalkOrder::kForward);
  CHECK(broken[0][1].isnan().any().item<bool>());
  for (size_t i = 0; i < broken.size(); ++i) CHECK(at::equal(broken[i][2], clean[i][2]));  // of no valid row
  CHECK(at::equal(broken[1], clean[1]));
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of rolled rows runs them: one launch each way") {
  counted_rolls = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("rolled_rows_forward", dispatched<counted_forward>);
  library.impl("rolled_rows_backward", dispatched<counted_backward>);
  const auto launches = [&](int64_t links, at::ScalarType type) {
    const auto leaf = [&](int64_t width) {
      return at::empty({2, 50, width}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const Tensors inputs{leaf(8), leaf(links)};
    const OpCounter counter;
    const at::Tensor out =
        rolled_rows(inputs[0], inputs[1], {std::vector<int64_t>(static_cast<size_t>(links), 1), true, {}});
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    if (counted_rolls > 0) CHECK(counter.counts().flops == 6 * 2 * 50 * 8 * links);
    return std::exchange(counted_rolls, 0);
  };
  CHECK(launches(12, at::kFloat) == 2);
  CHECK(launches(kMostLinks, at::kFloat) == 2);
  // The definition there misses LibTorch's roll.
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(launches(kMostLinks + 1, at::kFloat), Contains("aten::roll"));
  CHECK_THROWS_WITH(launches(12, at::kDouble), Contains("aten::roll"));
  CHECK(counted_rolls == 0);
}

TEST_CASE("plans of rolled rows fit a device at any size") {
  constexpr auto fits = [](int64_t b, int64_t n, int64_t e) {
    const int64_t at_once = kRolledThreads / row_lanes(e);
    return (row_lanes(e) == kWarp || row_lanes(e) * kRun >= e) &&
           launch_fits<RolledBackwardProgram>(row_grid(b * n, e, kRolledThreads)) &&
           is_division(row_grid(b * n, e, kRolledThreads).blocks, at_once, b * n);
  };
  STATIC_REQUIRE(all_fit({1, 8, 9, 32, 256, 4096, kMostNumbered}, fits));
  STATIC_REQUIRE(step_of(-1, kMostNumbered) == kMostNumbered - 1);
  RolledArguments a;
  a.b = 32, a.n = kMostNumbered, a.e = 1;
  const RolledPlace last(NumberedThread<kRolledThreads>{32 * kMostNumbered - 1}, a),
      behind(NumberedThread<kRolledThreads>{32 * kMostNumbered}, a);
  CHECK((last.lives && last.i == kMostNumbered - 1 && last.sample == 31 * kMostNumbered));
  CHECK_FALSE(behind.lives);
  const auto taken = [](int64_t n, int64_t e) {
    return fits_rolled_programs(at::empty({1, n, e}, at::kMeta), at::empty({1, n, 2}, at::kMeta));
  };
  CHECK((taken(kMostNumbered, 1) && taken(1, kMostNumbered)));
  CHECK_FALSE((taken(kMostNumbered + 1, 1) || taken(1, kMostNumbered + 1)));
}

}  // namespace xformer::kernels::rolled_rows_device_test
