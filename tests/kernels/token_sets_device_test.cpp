// The largest rows of sets as a device computes them, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/token_sets/device.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::token_sets_device_test {

namespace {

struct WalkedSets {
  int64_t n = 21, size = 4, d = 5;
  bool masked = true, gaps = false;

  [[nodiscard]] TokenSets sets() const { return {size, masked ? ragged_flags(3, n) : at::Tensor()}; }
  // x, then the gradient of the result.
  [[nodiscard]] Tensors operands() const {
    return {float_heads("x", {3, 2, n, d}, gaps) - 3, float_heads("gradient", {3, 2, sets().count(n), d})};
  }
};

// The result, then the gradient of x.
Tensors largest(const WalkedSets& one, const Tensors& given, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const SetMaxArguments& a) { run_set_max(a, backward, walking(order)); };
  };
  const at::Tensor out = set_max_forward_device(given[0], one.sets(), launch(false));
  return {out, set_max_backward_device(given[1], given[0], out, one.sets(), launch(true))};
}

double worst_sets(const WalkedSets& one, const Tensors& given) {
  return worst_walked([&](WalkOrder order) { return largest(one, given, order); },
                      in_double([&](const Tensors& in) { return Tensors{set_max_reference(in[0], one.sets())}; },
                                {given[0]}, {given[1]}));
}
double worst_sets(const WalkedSets& one) { return worst_sets(one, one.operands()); }

int counted_launches = 0;

void count_launch(const SetMaxArguments&) { ++counted_launches; }

at::Tensor counted_forward(const at::Tensor& x, const TokenSets& sets) {
  return set_max_forward_device(x, sets, count_launch);
}
at::Tensor counted_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out,
                            const TokenSets& sets) {
  return set_max_backward_device(gradient, x, out, sets, count_launch);
}

}  // namespace

TEST_CASE("sets' largest rows on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    CHECK(worst_sets({.n = n, .size = 1 + n % 13, .d = 1 + n % 20, .masked = n % 3 > 0, .gaps = n % 5 == 0}) == 0);
  }
}

TEST_CASE("sets' largest rows on a device: sizes, widths, equal rows and NaN") {
  const PoisonedMemory poisoned;
  for (const int64_t size : {1, 2, 21, 100}) CHECK(worst_sets({.size = size, .masked = size % 2 == 0}) == 0);
  for (const int64_t d : {1, 32, 33, 300}) CHECK(worst_sets({.d = d}) == 0);
  // The gradient goes to the first of equal rows, whole.
  const WalkedSets one{.n = 40, .size = 10};
  Tensors given = one.operands();
  given[0] = given[0].round();
  const at::Tensor slopes = largest(one, given, WalkOrder::kForward)[1];
  CHECK(slopes.ne(0).sum().item<int64_t>() ==
        given[1].index({one.sets().valid.view({3, 1, 4, 10}).any(3).expand({3, 2, 4})}).numel());
  for (int64_t i = 1; i < 10; ++i) {
    const auto token = [&](const at::Tensor& x, int64_t place) { return x[0].select(1, place); };
    const at::Tensor twice = token(given[0], i).eq(token(given[0], 0));
    CHECK(token(slopes, i).masked_select(twice).eq(0).all().item<bool>());
  }
  // A NaN is larger than all; what is not valid is not read.
  given[0].select(2, 3).fill_(NAN);
  CHECK(largest(one, given, WalkOrder::kForward)[0].isnan().equal(set_max_reference(given[0], one.sets()).isnan()));
  const Tensors clean = largest(one, one.operands(), WalkOrder::kForward);
  Tensors padded = one.operands();
  padded[0] = lost_padding(padded[0], one.sets().valid);
  const Tensors lost = largest(one, padded, WalkOrder::kForward);
  for (size_t i = 0; i < clean.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
}

TEST_CASE("a device with kernels of sets' largest rows runs them: one launch each way") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("set_max_forward", dispatched<counted_forward>);
  library.impl("set_max_backward", dispatched<counted_backward>);
  const at::Tensor x = at::empty({2, 3, 21, 5}, at::TensorOptions(at::kMeta)).requires_grad_(true);
  const at::Tensor out = set_max(x, {4, {}});
  CHECK(torch::autograd::grad({out}, {x}, {at::ones_like(out)})[0].sizes() == x.sizes());
  CHECK(std::exchange(counted_launches, 0) == 2);
  CHECK(fits_set_max_program(x));
  CHECK_FALSE(fits_set_max_program(x.to(at::kDouble)));
}

TEST_CASE("plans of sets' largest rows fit a device at any size") {
  constexpr auto fits = [](int64_t heads, int64_t sets, int64_t d) {
    const LaunchGrid grid = set_max_grid(heads * sets * d);
    return launch_fits<SetMaxBackwardProgram>(grid) && is_division(grid.blocks, kSetThreads, heads * sets * d);
  };
  STATIC_REQUIRE(all_fit({1, 256, 257}, fits));
  SetMaxArguments a;
  a.b = 4, a.h = 2, a.n = int64_t{1} << 32, a.size = 3, a.t = (a.n + 2) / 3, a.d = 1;
  const SetChannel last(NumberedThread<kSetThreads>{8 * a.t - 1}, a), behind(NumberedThread<kSetThreads>{8 * a.t}, a);
  CHECK((last.lives && last.sample == 3 && last.head == 1 && last.first == a.n - 1 && last.end == a.n));
  CHECK_FALSE(behind.lives);
}

}  // namespace xformer::kernels::token_sets_device_test
