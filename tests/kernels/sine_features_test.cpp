// Sines and cosines of products with random directions, against their definition, with gradients.
#include "kernels/sine_features/sine_features.h"

#include <ATen/Functions.h>

#include <limits>

#include "fused_support.h"
#include "kernels/fused.h"
#include "policy_scope.h"

namespace xformer::kernels::sine_features_test {

namespace {

TensorFunction features(double amplitude) {
  return [amplitude](const Tensors& x) -> Tensors { return {sine_features(x[0], amplitude)}; };
}
TensorFunction defined(double amplitude) {
  return [amplitude](const Tensors& x) -> Tensors { return {sine_features_reference(x[0], amplitude)}; };
}

}  // namespace

TEST_CASE("sine features equal their definition, with gradients, for every width from 1 to 130 and many rows") {
  const int64_t before = fused_calls("sine_features");
  for (int64_t width = 1; width <= 130; ++width) {
    CAPTURE(width);
    const at::Tensor y = random_tensor("y", {2, 3, 5, width}) * 6;
    CHECK(worst_difference(features(0.125), defined(0.125), {y}) < 1e-12);
    CHECK(worst_difference(features(0.125), defined(0.125), {y.to(at::kFloat)}) < 1e-6);
  }
  CHECK(fused_calls("sine_features") > before);
  const at::Tensor many = random_tensor("many", {3, 2, 700, 64}, at::kFloat) * 20;
  CHECK(worst_difference(features(1), defined(1), {many}) < 1e-6);
  const at::Tensor turned = random_tensor("turned", {64, 30}, at::kFloat).t();
  CHECK(worst_difference(features(2), defined(2), {turned}) < 1e-6);
  CHECK(same_on_any_threads(features(1), {many}));
  CHECK(sine_features(at::empty({0, 7}), 1).sizes() == at::IntArrayRef({0, 14}));
}

TEST_CASE("sine features of every eighth of the circle, and of numbers near and far: as exact as float") {
  const auto worst = [](const at::Tensor& y) {
    const at::Tensor meant = sine_features_reference(y.to(at::kDouble), 1), got = sine_features(y, 1);
    return (got.to(at::kDouble) - meant).abs().max().item<double>();
  };
  CHECK(worst(at::linspace(-70, 70, 100001, at::kFloat)) < 1.5e-7);
  for (const double far : {1e2, 1e3, 8191.0, 8193.0, 1e5, 1e7, 3e38}) {
    CAPTURE(far);
    CHECK(worst(at::linspace(far * 0.999, far, 1001, at::kFloat)) < 2e-7);
    CHECK(worst(at::linspace(far * 0.999, far, 1001, at::kFloat).neg()) < 2e-7);
    CHECK(worst(at::linspace(0, far, 1001, at::kFloat)) < 2e-7);
  }
  const at::Tensor none = at::tensor({0.5F, std::numeric_limits<float>::quiet_NaN(), 1.0F});
  const at::Tensor got = sine_features(none, 1);
  for (const int64_t place : {1, 4}) CHECK(got[place].isnan().item<bool>());
  for (const int64_t place : {0, 2, 3, 5}) CHECK(got[place].isfinite().item<bool>());
  CHECK(sine_features(at::full({4}, INFINITY), 1).isnan().all().item<bool>());
}

TEST_CASE("sine features: --kernels=check holds both passes, and reference runs the definition") {
  const at::Tensor y = random_tensor("y", {2, 50, 16}, at::kFloat) * 4;
  {
    const PolicyScope policy(Policy::kCheck);
    CHECK(worst_difference(features(0.5), defined(0.5), {y}) < 1e-6);
  }
  const PolicyScope policy(Policy::kReference);
  const int64_t before = fused_calls("sine_features");
  CHECK(worst_difference(features(0.5), defined(0.5), {y}) == 0);
  CHECK(fused_calls("sine_features") == before);
}

}  // namespace xformer::kernels::sine_features_test
