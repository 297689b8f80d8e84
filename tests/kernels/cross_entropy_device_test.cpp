// Cross entropy and a step's sums as a device computes them, walked on the CPU, against their definitions in double
// precision.
#include <cmath>

#include "block_walk.h"
#include "fused_support.h"
#include "kernels/cross_entropy/device.h"
#include "kernels/device/occupancy.h"
#include "kernels/step_sums/device.h"
#include "kernels/step_sums/step_sums.h"
#include "poisoned_memory.h"

namespace xformer::kernels::cross_entropy_device_test {

namespace {

ClassRows random_rows(int64_t b, int64_t c, double size = 3) {
  at::Tensor labels = at::empty({b}, at::kLong), valid = at::ones({b});
  for (int64_t i = 0; i < b; ++i) labels[i] = (7 * i + b) % c;
  if (b > 2) valid[1] = 0;
  return {random_tensor("scores", {b, c}, at::kFloat) * size, labels, valid};
}

CrossEntropyForward walked_loss(const ClassRows& rows, double smoothing, WalkOrder order = WalkOrder::kForward) {
  return cross_entropy_device(
      rows, smoothing, [&](const CrossEntropyArguments& a) { walk(kCrossEntropyGrid, CrossEntropyProgram{a}, order); });
}

void check_rows(const ClassRows& rows, double smoothing) {
  CAPTURE(rows.scores.sizes(), smoothing);
  const ClassRows exact{rows.scores.to(at::kDouble).requires_grad_(true), rows.labels, rows.row_valid};
  const at::Tensor meant = cross_entropy_reference(exact, smoothing);
  const at::Tensor slope = torch::autograd::grad({meant}, {exact.scores})[0];
  const CrossEntropyForward got = walked_loss(rows, smoothing),
                            again = walked_loss(rows, smoothing, WalkOrder::kBackward);
  CHECK(std::abs(got.loss.item<double>() - meant.item<double>()) <= 2e-6 * (1 + std::abs(meant.item<double>())));
  CHECK(difference(got.gradient.to(at::kDouble), slope) < 1e-6);
  CHECK(got.right.item<double>() == rows_found_reference(rows).item<double>());
  CHECK((at::equal(got.loss, again.loss) && at::equal(got.gradient, again.gradient) &&
         at::equal(got.right, again.right)));
}

}  // namespace

TEST_CASE("cross entropy on a device: 1 to 130 classes and 1 to 130 rows, and many, smoothed or not") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    check_rows(random_rows(5, n), n % 2 == 0 ? 0.1 : 0);
    check_rows(random_rows(n, 10), n % 2 == 0 ? 0 : 0.3);
  }
  check_rows(random_rows(3, 1000), 0.1);
  check_rows(random_rows(64, 1024), 0);
  check_rows(random_rows(1, kMostClassScores), 0.1);
  check_rows(random_rows(kMostClassScores / 8, 8), 0.1);
  ClassRows spread = random_rows(6, 12);  // a view with gaps
  spread.scores = random_tensor("wide", {6, 24}, at::kFloat).narrow(1, 3, 12);
  check_rows(spread, 0.1);
}

TEST_CASE("scores far out, equal ones and empty rows: cross entropy on a device stays what it is") {
  check_rows(random_rows(9, 40, 1e4), 0);  // differences of thousands
  ClassRows equal = random_rows(8, 40);
  equal.scores = at::zeros({8, 40});  // the first class counts as the highest
  equal.labels = at::tensor({0, 0, 1, 39, 0, 5, 0, 32}, at::kLong);
  CHECK(walked_loss(equal, 0).right.item<double>() == 3);
  check_rows(equal, 0);
  ClassRows pairs = equal;
  pairs.scores.select(1, 33).fill_(2), pairs.scores.select(1, 3).fill_(2);  // the lower one of the later lane
  pairs.labels.fill_(3);
  CHECK(walked_loss(pairs, 0).right.item<double>() == 7);
  const ClassRows rows = random_rows(4, 10);
  const CrossEntropyForward before = walked_loss(rows, 0.1);
  rows.scores.select(0, 1).fill_(NAN);  // which counts in nothing
  const CrossEntropyForward after = walked_loss(rows, 0.1);
  CHECK(at::equal(before.loss, after.loss));
  CHECK(at::equal(before.gradient, after.gradient));
  CHECK(after.gradient.select(0, 1).abs().max().item<double>() == 0);
}

TEST_CASE("a device takes so many scores in one block, and the rest is LibTorch's") {
  CHECK(fits_cross_entropy_program(random_rows(64, 1024)));
  CHECK_FALSE(fits_cross_entropy_program(random_rows(65, 1024)));
  ClassRows rows = random_rows(4, 4);
  rows.scores = rows.scores.to(at::kDouble);
  CHECK_FALSE(fits_cross_entropy_program(rows));
  CHECK_THROWS(walked_loss(rows, 0));
}

TEST_CASE("a step's sums on a device: added, or where it was skipped not, whatever they are") {
  for (const int64_t k : {1, 3, 31, 40})
    for (const double skipped : {0.0, 1.0}) {
      const at::Tensor before = random_tensor("meter", {k + 2}), meant = before.clone(),
                       flag = at::scalar_tensor(skipped, at::kDouble);
      at::Tensor sums = random_tensor("sums", {k});
      if (skipped > 0) sums[0] = NAN;
      add_step_sums_reference(meant, sums, flag);
      for (const WalkOrder order : {WalkOrder::kForward, WalkOrder::kBackward}) {
        const at::Tensor got = before.clone();
        step_sums_device(got, sums, flag,
                         [order](const StepSumsArguments& a) { walk(kStepSumsGrid, StepSumsProgram{a}, order); });
        CHECK(at::equal(got, meant));
      }
    }
}

TEST_CASE("plans of cross entropy and of a step's sums fit a device at any size") {
  // Both are one block whatever comes: a device holds it, and what its threads share has its place.
  const auto holds = [](const LaunchGrid& grid, int threads, int resident) {
    return grid.blocks == 1 && threads % kWarp == 0 && threads <= 1024 && grid.shared_bytes <= kMostSharedBytes &&
           resident_blocks(kSm80, threads, 1, grid.shared_bytes) >= resident;
  };
  STATIC_REQUIRE(holds(kCrossEntropyGrid, CrossEntropyProgram::kThreads, CrossEntropyProgram::kResident));
  STATIC_REQUIRE(kCrossEntropyGrid.shared_bytes == 2 * CrossEntropyProgram::kThreads / kWarp * sizeof(double));
  STATIC_REQUIRE(holds(kStepSumsGrid, StepSumsProgram::kThreads, StepSumsProgram::kResident));
  // A class is an int32_t, one behind the last too.
  STATIC_REQUIRE(kMostClassScores < INT32_MAX);
  const auto fits = [](int64_t b, int64_t c) {
    const at::TensorOptions nowhere(at::kMeta);
    return fits_cross_entropy_program({at::empty({b, c}, nowhere.dtype(at::kFloat)),
                                       at::empty({b}, nowhere.dtype(at::kLong)),
                                       at::empty({b}, nowhere.dtype(at::kFloat))});
  };
  CHECK((fits(1, kMostClassScores) && fits(kMostClassScores, 1)));
  for (const int64_t many : {kMostClassScores + 1, int64_t{1} << 31, int64_t{1} << 40})
    CHECK_FALSE((fits(1, many) || fits(many, 1)));
  // The product of these is a multiple of 2^32.
  CHECK_FALSE(fits(int64_t{1} << 20, int64_t{1} << 20));
  CHECK_FALSE((fits(0, 10) || fits(10, 0)));
}

}  // namespace xformer::kernels::cross_entropy_device_test
