// rolled_rows against its definition.
#include "kernels/rolled_rows/rolled_rows.h"

#include "core/random.h"
#include "fused_support.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::rolled_rows_test {

at::Tensor some_rows(int64_t b, int64_t n) {
  Stream numbers(static_cast<uint64_t>(11 * b + n));
  at::Tensor valid = at::ones({b, n}, at::kBool);
  for (int64_t row = 1; row < b; ++row)
    for (int64_t i = 0; i < n; ++i) valid[row][i] = numbers.next_below(3) > 0;
  return valid;
}

TEST_CASE("rolled_rows equals its reference, with gradients") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const auto& [b, n, e] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {1, 1, 1}, {3, 29, 5}, {2, 300, 32}, {2, 7, 100}, {3, 520, 41}})
      for (const std::vector<int64_t>& offsets :
           {std::vector<int64_t>{0}, {0, 1, 2, 4, 8, 16}, {0, 3, 6, -3, -6, 1000, -1000}})
        for (const bool residual : {false, true})
          for (const bool masked : {false, true}) {
            CAPTURE(b, n, e, offsets.size(), residual, masked);
            const RolledRowsOptions options{offsets, residual, masked ? some_rows(b, n) : at::Tensor()};
            const auto with = [&](auto* operation) {
              return [=](const Tensors& x) { return Tensors{operation(x[0], x[1], options)}; };
            };
            const Tensors inputs{random_tensor("v", {b, n, e}, type),
                                 random_tensor("w", {b, n, static_cast<int64_t>(offsets.size())}, type)};
            CHECK(worst_difference(with(&rolled_rows), with(&rolled_rows_reference), inputs) <
                  (type == at::kDouble ? 1e-12 : 2e-5));
          }
}

TEST_CASE("rolled_rows is the sum that its header states, around the end") {
  constexpr int64_t kRows = 7;
  const std::vector<int64_t> offsets{0, 2, -3, 9};
  const at::Tensor v = random_tensor("v", {1, kRows, 3}), w = random_tensor("w", {1, kRows, 4});
  const at::Tensor got = rolled_rows(v, w, {offsets, true});
  for (int64_t i = 0; i < kRows; ++i) {
    at::Tensor sum = v[0][i];
    for (size_t p = 0; p < offsets.size(); ++p)
      sum = sum + w[0][i][static_cast<int64_t>(p)] * v[0][((i + offsets[p]) % kRows + kRows) % kRows];
    CHECK(difference(got[0][i], sum) < 1e-14);
  }
}

TEST_CASE("rolled_rows counts two FLOPs for each number of a valid row's links") {
  const at::Tensor v = random_tensor("v", {2, 20, 6}), w = random_tensor("w", {2, 20, 3});
  const at::Tensor valid = some_rows(2, 20);
  const OpCounter counter;
  (void)rolled_rows(v, w, {{0, 1, 5}, true, valid});
  CHECK(counter.counts().flops == 2 * 6 * 3 * valid.sum().item<int64_t>());
}

}  // namespace xformer::kernels::rolled_rows_test
