// Running maxima as a device computes them, walked on the CPU, against the definition in double precision.
#include <limits>

#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/running_max/device.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::running_max_device_test {

namespace {

struct WalkedCells {
  int64_t rows = 5, columns = 7, d = 3;
  bool down = true, behind = false, masked = true;

  [[nodiscard]] RunningMaxOptions options() const {
    const at::Tensor flags = masked ? ragged_flags(3, rows * columns) : at::ones({3, rows * columns}, at::kBool);
    return {flags.view({3, rows, columns}), down, behind};
  }
  // x, then the gradient of the result.
  [[nodiscard]] Tensors operands() const {
    return {random_tensor("x", {3, 2, rows, columns, d}, at::kFloat),
            random_tensor("gradient", {3, 2, rows, columns, d}, at::kFloat)};
  }
};

// The result, then the gradient of x.
Tensors maxima(const WalkedCells& one, const Tensors& given, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const RunningMaxArguments& a) { run_running_max(a, backward, walking(order)); };
  };
  return {running_max_on_device(given[0], {}, one.options(), launch(false)),
          running_max_on_device(given[0], given[1], one.options(), launch(true))};
}

double worst_maxima(const WalkedCells& one) {
  const Tensors given = one.operands();
  return worst_walked([&](WalkOrder order) { return maxima(one, given, order); },
                      in_double([&](const Tensors& in) { return Tensors{running_max_reference(in[0], one.options())}; },
                                {given[0]}, {given[1]}));
}

constexpr double kLikeFloat = 2e-6;

int counted_launches = 0;

void count_launch(const RunningMaxArguments&) { ++counted_launches; }

at::Tensor counted_forward(const at::Tensor& x, const RunningMaxOptions& options) {
  return running_max_on_device(x, {}, options, count_launch);
}
at::Tensor counted_backward(const at::Tensor& gradient, const at::Tensor& x, const RunningMaxOptions& options) {
  return running_max_on_device(x, gradient, options, count_launch);
}

}  // namespace

TEST_CASE("running maxima on a device: every number of rows and columns from 1 to 130, both ways of each") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n)
    for (const bool down : {false, true})
      for (const bool behind : {false, true}) {
        CAPTURE(n, down, behind);
        CHECK(worst_maxima({.rows = down ? n : 1 + n % 3,
                            .columns = down ? 1 + n % 3 : n,
                            .d = 1 + n % 5,
                            .down = down,
                            .behind = behind,
                            .masked = n % 4 > 0}) < kLikeFloat);
      }
}

TEST_CASE("running maxima on a device: widths over more than a block, equal numbers, NaN") {
  const PoisonedMemory poisoned;
  for (const int64_t d : {1, 32, 33, 64, 300}) {
    CAPTURE(d);
    CHECK(worst_maxima({.rows = 9, .columns = 6, .d = d}) < kLikeFloat);
    CHECK(worst_maxima({.rows = 9, .columns = 6, .d = d, .down = false, .behind = true}) < kLikeFloat);
  }
  // Of equal numbers the last one on the way takes the gradient.
  const WalkedCells one{.rows = 12, .columns = 2, .d = 4};
  Tensors given = one.operands();
  given[0] = given[0].mul(2).round();
  const Tensors meant = in_double(
      [&](const Tensors& in) { return Tensors{running_max_reference(in[0], one.options())}; }, {given[0]}, {given[1]});
  CHECK(worst_walked([&](WalkOrder order) { return maxima(one, given, order); }, meant) < kLikeFloat);
  // A NaN stays from its cell on, and where no flag is set nothing is read.
  given[0].select(2, 3).fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor lost = running_max_reference(given[0], one.options()).isnan();
  CHECK(lost.any().item<bool>());
  CHECK(maxima(one, given, WalkOrder::kForward)[0].isnan().equal(lost));
}

TEST_CASE("a device with kernels of running maxima runs them: one launch each way") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("running_max_forward", dispatched<counted_forward>);
  library.impl("running_max_backward", dispatched<counted_backward>);
  const at::Tensor x = at::empty({2, 2, 5, 7, 3}, at::TensorOptions(at::kMeta)).requires_grad_(true);
  const at::Tensor valid = at::ones({2, 5, 7}, at::TensorOptions(at::kMeta).dtype(at::kBool));
  const at::Tensor out = running_max(x, {valid, true, false});
  CHECK(torch::autograd::grad({out}, {x}, {at::ones_like(out)})[0].sizes() == x.sizes());
  CHECK(std::exchange(counted_launches, 0) == 2);
  CHECK(fits_running_max_program(x));
  CHECK_FALSE(fits_running_max_program(x.to(at::kDouble)));
}

TEST_CASE("plans of running maxima fit a device at any size") {
  constexpr auto fits = [](int64_t heads, int64_t rows, int64_t d) {
    for (const bool down : {false, true}) {
      RunningMaxArguments a;
      a.heads = heads, a.rows = rows, a.columns = 1, a.d = d, a.down = down;
      const LaunchGrid grid = running_max_grid(a.channels());
      if (!launch_fits<RunningMaxBackwardProgram>(grid) ||
          !is_division(grid.blocks, kRunningMaxThreads, heads * (down ? 1 : rows) * d))
        return false;
    }
    return true;
  };
  STATIC_REQUIRE(all_fit({1, 256, 257}, fits));
  // The last channel of the last row, of more cells than an int counts.
  RunningMaxArguments a;
  a.heads = 8, a.rows = 1 << 20, a.columns = 1 << 10, a.d = 4, a.down = false, a.behind = true;
  const RunningMaxLane last(NumberedThread<kRunningMaxThreads>{a.channels() - 1}, a),
      behind(NumberedThread<kRunningMaxThreads>{a.channels()}, a);
  CHECK((last.lives && last.first == (int64_t{1} << 35) - 1 && last.first_flag == (int64_t{1} << 33) - 1));
  CHECK_FALSE(behind.lives);
}

}  // namespace xformer::kernels::running_max_device_test
