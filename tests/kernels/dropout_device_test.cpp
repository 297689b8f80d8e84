// Dropout as a device computes it, walked on the CPU: the CPU's own result, bit for bit.
#include "block_walk.h"
#include "fused_support.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/device.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::dropout_device_test {

namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

// `shift`: elements by which they begin behind an aligned place.
void check_rows(at::ScalarType type, int64_t rows, int64_t row_elements, int64_t first_row, int64_t shift) {
  CAPTURE(type, rows, row_elements, first_row, shift);
  DropoutStream stream(11);
  stream.set_step(6, first_row);
  const at::Tensor x = random_tensor("x", {rows * row_elements + shift}, type)
                           .narrow(0, shift, rows * row_elements)
                           .view({rows, row_elements});
  const at::Tensor meant = dropout_cpu(x, 0.4, stream.state, 3);
  for (const WalkOrder order : {WalkOrder::kForward, WalkOrder::kBackward}) {
    const PoisonedMemory poisoned;
    const at::Tensor got = dropout_device(x, 0.4, stream.state, 3, [&](const DropoutArguments& a) {
      run_dropout<WalkedTypes>(a, [&](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); });
    });
    CHECK(got.equal(meant));
  }
}

}  // namespace

TEST_CASE("dropout on a device drops what the CPU drops: rows of every length from 1 to 130") {
  for (int64_t n = 1; n <= 130; ++n)
    for (const at::ScalarType type : kTypes)
      for (const int64_t shift : {0, 1}) check_rows(type, /*rows=*/1 + n % 3, n, /*first_row=*/n % 5, shift);
}

TEST_CASE("dropout on a device drops what the CPU drops, wherever rows begin") {
  for (const at::ScalarType type : kTypes)
    for (const int64_t rows : {1, 3})
      for (const int64_t row_elements : {1, 8, 13, 64, 1100})
        for (const int64_t first_row : {0, 1, 5})
          for (const int64_t shift : {0, 1}) check_rows(type, rows, row_elements, first_row, shift);
}

TEST_CASE("plans of dropout fit a device at any size") {
  constexpr auto fits = [](int64_t elements) {
    return launch_fits<DropoutProgram<double>>(dropout_grid(elements)) &&
           is_division(dropout_grid(elements).blocks, kDropoutThreads * kRun, elements);
  };
  STATIC_REQUIRE((fits(1) && fits(2048) && fits(2049) && fits((int64_t{1} << 31) + 1) && fits(int64_t{1} << 41)));
}

}  // namespace xformer::kernels::dropout_device_test
