// Rows by a table of places as a device moves them, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/picked_rows/device.h"
#include "kernels/picked_rows/picked_rows.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::picked_rows_device_test {

namespace {

struct WalkedRows {
  int64_t n = 9, m = 14, d = 5;
  bool heads_inside = false;
  at::ScalarType type = at::kFloat;

  // Some of them -1 where that may be.
  [[nodiscard]] at::Tensor places(bool some_none) const {
    const at::Tensor numbers = (random_tensor("places", {2, 3, m}) * 1e6).to(at::kLong);
    return some_none ? numbers.remainder(n + 1) - 1 : numbers.remainder(n);
  }
  [[nodiscard]] at::Tensor rows(const char* name, int64_t count) const {
    const at::Tensor x = random_tensor(name, {2, heads_inside ? count : 3, heads_inside ? 3 : count, d}, type);
    return heads_inside ? x.transpose(1, 2) : x;
  }
};

Tensors moved(const WalkedRows& one, WalkOrder order) {
  const auto launch = [order](const MovedRowsArguments& a) { run_moved_rows<WalkedTypes>(a, walking(order)); };
  return {moved_rows_on_device(one.rows("x", one.n), one.places(true), one.n, false, launch),
          moved_rows_on_device(one.rows("y", one.m), one.places(false), one.n, true, launch)};
}

double worst_moved(const WalkedRows& one) {
  const Tensors got = moved(one, WalkOrder::kForward), again = moved(one, WalkOrder::kBackward);
  CHECK((at::equal(got[0], again[0]) && at::equal(got[1], again[1])));
  const at::Tensor picked = picked_rows_reference(one.rows("x", one.n).to(at::kDouble), one.places(true), true),
                   summed = summed_rows_reference(one.rows("y", one.m).to(at::kDouble), one.places(false), one.n);
  CHECK(at::equal(got[0].to(at::kDouble), picked));
  return difference(got[1].to(at::kDouble), summed);
}

int counted_moves = 0;

void count_move(const MovedRowsArguments&) { ++counted_moves; }
at::Tensor counted_pick(const at::Tensor& x, const at::Tensor& places) {
  return moved_rows_on_device(x, places, x.size(2), false, count_move);
}
at::Tensor counted_sum(const at::Tensor& x, const at::Tensor& places, int64_t n) {
  return moved_rows_on_device(x, places, n, true, count_move);
}

}  // namespace

TEST_CASE("rows by places on a device: every number of rows, places and channels from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t size = 1; size <= 130; ++size) {
    CAPTURE(size);
    CHECK(worst_moved({.n = size, .heads_inside = size % 2 == 0}) < 1e-6);
    CHECK(worst_moved({.m = size, .heads_inside = size % 2 == 0}) < 1e-6);
    CHECK(worst_moved({.d = size, .heads_inside = size % 2 == 0}) < 1e-6);
  }
}

TEST_CASE("rows by places on a device: rows of several warps, many of one place, 16 bits") {
  const PoisonedMemory poisoned;
  for (const bool inside : {false, true}) {
    CHECK(worst_moved({.n = 70, .m = 300, .d = 32, .heads_inside = inside}) < 1e-6);
    CHECK(worst_moved({.n = 3, .m = 200, .d = 700, .heads_inside = inside}) < 1e-5);
    CHECK(worst_moved({.n = 70, .m = 90, .d = 32, .heads_inside = inside, .type = at::kHalf}) < 1.0 / 1024);
    CHECK(worst_moved({.n = 70, .m = 90, .d = 40, .heads_inside = inside, .type = at::kBFloat16}) < 1.0 / 128);
  }
}

TEST_CASE("a device with kernels of rows by places runs them: one launch each way") {
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("picked_rows_forward", dispatched<counted_pick>);
  library.impl("picked_rows_backward", dispatched<counted_sum>);
  const at::TensorOptions meta(at::kMeta);
  const at::Tensor places = at::zeros({2, 3, 7}, meta.dtype(at::kLong));
  for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
    const at::Tensor x = at::empty({2, 3, 5, 8}, meta.dtype(type)).requires_grad_(true);
    const at::Tensor out = summed_rows(picked_rows(x, places), places, 5);
    CHECK(out.scalar_type() == type);
    CHECK(torch::autograd::grad({out}, {x}, {at::ones_like(out)})[0].sizes() == x.sizes());
    CHECK(std::exchange(counted_moves, 0) == 4);
  }
  CHECK_FALSE(fits_moved_rows_programs(at::empty({2, 3, 5, 8}, meta.dtype(at::kDouble)), places));
}

TEST_CASE("plans of rows by places fit a device at any size") {
  constexpr auto fits = [](int64_t b, int64_t n, int64_t d) {
    for (const bool sums : {false, true}) {
      MovedRowsArguments a;
      a.b = b, a.h = 1, a.n = a.m = n, a.d = d, a.sums = sums;
      const LaunchGrid grid = moved_rows_grid(a);
      if (!(sums ? launch_fits<SummedRowsProgram<float>>(grid) : launch_fits<PickedRowsProgram<float>>(grid)))
        return false;
    }
    return true;
  };
  STATIC_REQUIRE(all_fit({1, 33, 257}, fits));
}

}  // namespace xformer::kernels::picked_rows_device_test
