// Rows of unit length with a scale for each channel, against their definition, with gradients.
#include "kernels/unit_rows/unit_rows.h"

#include <ATen/Functions.h>

#include "fused_support.h"
#include "kernels/fused.h"
#include "policy_scope.h"

namespace xformer::kernels::unit_rows_test {

namespace {

TensorFunction scaled(double epsilon) {
  return [epsilon](const Tensors& x) -> Tensors { return {unit_rows(x[0], x[1], epsilon)}; };
}
TensorFunction defined(double epsilon) {
  return [epsilon](const Tensors& x) -> Tensors { return {unit_rows_reference(x[0], x[1], epsilon)}; };
}

// x [b,h,n,d] as a projection leaves it, and scales.
Tensors inputs_of(int64_t b, int64_t h, int64_t n, int64_t d, at::ScalarType type) {
  return {random_tensor("x", {b, n, h, d}, type).transpose(1, 2), random_tensor("sigma", {h, d}, type)};
}

}  // namespace

TEST_CASE("rows of unit length equal their definition, with gradients, for every width from 1 to 130") {
  const int64_t before = fused_calls("unit_rows");
  for (int64_t width = 1; width <= 130; ++width) {
    CAPTURE(width);
    CHECK(worst_difference(scaled(1e-6), defined(1e-6), inputs_of(2, 3, 7, width, at::kDouble)) < 1e-10);
    CHECK(worst_difference(scaled(0.5), defined(0.5), inputs_of(2, 3, 7, width, at::kFloat)) < 2e-5);
  }
  CHECK(fused_calls("unit_rows") > before);
}

TEST_CASE("rows of unit length: many rows in parts, strides, a row of zeros, none at all, and any threads") {
  for (const int64_t rows : {1, 255, 256, 257, 700}) {
    CAPTURE(rows);
    CHECK(worst_difference(scaled(1e-6), defined(1e-6), inputs_of(2, 2, rows, 32, at::kDouble)) < 1e-10);
    CHECK(same_on_any_threads(scaled(1e-6), inputs_of(3, 2, rows, 32, at::kFloat)));
  }
  Tensors gaps = inputs_of(2, 2, 60, 24, at::kDouble);
  gaps[0] = gaps[0].transpose(2, 3).contiguous().transpose(2, 3);
  CHECK(worst_difference(scaled(1e-6), defined(1e-6), gaps) < 1e-10);
  Tensors zeros = inputs_of(1, 2, 5, 8, at::kDouble);
  zeros[0] = zeros[0].clone();
  zeros[0].select(2, 3).zero_();
  CHECK(worst_difference(scaled(1e-6), defined(1e-6), zeros) < 1e-10);
  CHECK(unit_rows(at::empty({2, 3, 0, 8}), at::ones({3, 8}), 1e-6).sizes() == at::IntArrayRef({2, 3, 0, 8}));
}

TEST_CASE("rows of unit length: --kernels=check holds both passes, and reference runs the definition") {
  const Tensors inputs = inputs_of(2, 3, 50, 16, at::kFloat);
  {
    const PolicyScope policy(Policy::kCheck);
    CHECK(worst_difference(scaled(1e-6), defined(1e-6), inputs) < 2e-5);
  }
  const PolicyScope policy(Policy::kReference);
  const int64_t before = fused_calls("unit_rows");
  CHECK(worst_difference(scaled(1e-6), defined(1e-6), inputs) == 0);
  CHECK(fused_calls("unit_rows") == before);
}

}  // namespace xformer::kernels::unit_rows_test
