// running_max against its definition.
#include "kernels/running_max/running_max.h"

#include <limits>

#include "fused_support.h"

namespace xformer::kernels::running_max_test {

at::Tensor some_cells(int64_t b, int64_t rows, int64_t columns) {
  at::Tensor valid = random_tensor("valid", {b, rows, columns}).gt(-0.5);
  valid.select(1, 0).fill_(false);  // a row of none
  return valid;
}

TEST_CASE("running_max equals its reference, with gradients") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const auto& [b, h, rows, columns, d] :
         std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>{{1, 1, 1, 1, 1},
                                                                              {2, 2, 5, 7, 3},
                                                                              {1, 2, 64, 40, 32},
                                                                              {2, 1, 6, 5, 48},
                                                                              {1, 1, 3, 7, 16},
                                                                              {3, 1, 1, 9, 2},
                                                                              {2, 1, 9, 1, 4}})
      for (const bool down : {false, true})
        for (const bool behind : {false, true})
          for (const bool masked : {false, true}) {
            CAPTURE(b, h, rows, columns, d, down, behind, masked);
            const RunningMaxOptions options{
                masked ? some_cells(b, rows, columns) : at::ones({b, rows, columns}, at::kBool), down, behind};
            CHECK(worst_difference([&](const Tensors& x) { return Tensors{running_max(x[0], options)}; },
                                   [&](const Tensors& x) { return Tensors{running_max_reference(x[0], options)}; },
                                   {random_tensor("x", {b, h, rows, columns, d}, type)}) <
                  (type == at::kDouble ? 1e-14 : 1e-5));
          }
}

TEST_CASE("running_max is the largest of the cells before or behind, cell by cell") {
  constexpr int64_t kRows = 4, kColumns = 5;
  const at::Tensor x = random_tensor("x", {2, 2, kRows, kColumns, 3}) - 2, valid = some_cells(2, kRows, kColumns);
  for (const bool down : {false, true})
    for (const bool behind : {false, true}) {
      const at::Tensor got = running_max(x, {valid, down, behind});
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t r = 0; r < kRows; ++r)
          for (int64_t c = 0; c < kColumns; ++c) {
            at::Tensor largest;
            for (int64_t i = 0; i < (down ? kRows : kColumns); ++i) {
              const int64_t own = down ? r : c, row = down ? i : r, column = down ? c : i;
              if ((behind ? i <= own : i >= own) || !valid[b][row][column].item<bool>()) continue;
              const at::Tensor cell = x.select(0, b).select(1, row).select(1, column);  // [h,d]
              largest = largest.defined() ? at::maximum(largest, cell) : cell;
            }
            const at::Tensor cell = got.select(0, b).select(1, r).select(1, c);
            CHECK(cell.equal(largest.defined() ? largest : at::zeros_like(cell)));
          }
    }
}

TEST_CASE("running_max keeps a NaN from the cell it is in") {
  at::Tensor x = random_tensor("x", {1, 1, 1, 6, 2});
  x.select(3, 2).fill_(std::numeric_limits<double>::quiet_NaN());
  const RunningMaxOptions options{at::ones({1, 1, 6}, at::kBool), false, false};
  const at::Tensor bad = running_max(x, options).isnan(), meant = running_max_reference(x, options).isnan();
  CHECK(bad.equal(meant));
  CHECK(bad.sum().item<int64_t>() == 6);
}

TEST_CASE("of floats that are equal or none the same ones take the gradient as of doubles") {
  for (const int64_t d : {3, 16, 48})
    for (const bool down : {false, true})
      for (const bool behind : {false, true}) {
        at::Tensor x = (2 * random_tensor("x", {2, 1, 7, 9, d})).round();  // few numbers
        x.select(2, 3).select(2, 4).fill_(std::numeric_limits<double>::quiet_NaN());
        const at::Tensor slope = (8 * random_tensor("slope", x.sizes())).round();
        const auto gradient = [&](at::ScalarType type) {
          const at::Tensor own = x.to(type).requires_grad_(),
                           made = running_max(own, {some_cells(2, 7, 9), down, behind});
          return torch::autograd::grad({made}, {own}, {slope.to(type)})[0].to(at::kDouble);
        };
        CAPTURE(d, down, behind);
        CHECK(gradient(at::kFloat).equal(gradient(at::kDouble)));
      }
}

}  // namespace xformer::kernels::running_max_test
