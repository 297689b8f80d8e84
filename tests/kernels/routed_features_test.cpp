// Routed features: the CPU's kernels against their definition, a product with features of all resolutions.
#include "kernels/routed_features/routed_features.h"

#include "kernels/fused_support.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::routed_features_test {

namespace {

struct Routed {
  int64_t b = 2, n = 70, d = 16, sub_heads = 2, resolutions = 3;
  bool maps = true, gate = true, elu = false;
  double nowhere = 0.2;  // share of the tokens without a resolution
  int64_t only = -1;     // the resolution of all others
};

struct RoutedTensors {
  Tensors inputs;  // q, maps, tables, gate
  at::Tensor chosen;
  RoutedFeaturesOptions options;

  explicit RoutedTensors(const Routed& one, at::ScalarType type = at::kDouble) {
    const int64_t w = one.d / one.sub_heads;
    inputs = {random_tensor("q", {one.b, one.n, one.d}, type),
              one.maps ? random_tensor("maps", {one.resolutions, one.d, one.d}, type) : at::Tensor(),
              random_tensor("tables", {one.b, one.sub_heads, one.resolutions * w, w + 1}, type),
              one.gate ? random_tensor("gate", {one.b, one.n}, type) : at::Tensor()};
    inputs[2].select(-1, w).abs_().add_(0.1);  // as counts are, not near zero
    const at::Tensor draws = InitStream(5).uniform("draws", {one.b, one.n}, 0, 1).to(at::kDouble);
    const at::Tensor resolution = one.only >= 0 ? at::full({one.b, one.n}, one.only, at::kLong)
                                                : ((draws * 1000).floor().to(at::kLong)).remainder(one.resolutions);
    chosen =
        (resolution.unsqueeze(-1) == at::arange(one.resolutions)).logical_and((draws >= one.nowhere).unsqueeze(-1));
    options = {one.elu ? FeatureMap::kElu : FeatureMap::kRelu, 1e-6};
  }

  [[nodiscard]] Tensors run(const Tensors& in) const {
    return {routed_features(in[0], in[1], in[2], chosen, in[3], options)};
  }
  [[nodiscard]] Tensors define(const Tensors& in) const {
    return {routed_features_reference(in[0], in[1], in[2], chosen, in[3], options)};
  }
};

double worst(const Routed& one, at::ScalarType type = at::kDouble) {
  const RoutedTensors given(one, type);
  Tensors wide = given.inputs;
  for (at::Tensor& input : wide)
    if (input.defined()) input = input.to(at::kDouble);
  const int64_t before = fused_calls("routed_features");
  const Tensors got = run_with_gradients([&](const Tensors&in) { return given.run(in); }, given.inputs),
                meant = run_with_gradients([&](const Tensors&in) { return given.define(in); }, wide);
  CHECK(fused_calls("routed_features") == before + 1);
  double result = 0;
  for (size_t i = 0; i < got.size(); ++i) result = std::max(result, difference(got[i].to(at::kDouble), meant[i]));
  return result;
}

}  // namespace

TEST_CASE("routed features: every number of tokens, and around a block of them") {
  for (int64_t n = 1; n <= 40; ++n) {
    CAPTURE(n);
    CHECK(worst({.n = n}) < 1e-10);
  }
  for (const int64_t n : {511, 512, 513, 1100}) CHECK(worst({.b = 1, .n = n}) < 1e-10);
}

TEST_CASE("routed features: maps, gates, both features, widths, and tokens that go nowhere") {
  for (const bool elu : {false, true})
    for (const bool maps : {false, true})
      for (const bool gate : {false, true}) {
        CAPTURE(elu, maps, gate);
        CHECK(worst({.maps = maps, .gate = gate, .elu = elu}) < 1e-10);
      }
  for (const int64_t sub_heads : {1, 2, 3, 6}) CHECK(worst({.d = 18, .sub_heads = sub_heads}) < 1e-10);
  CHECK(worst({.d = 80, .sub_heads = 2}) < 1e-10);
  CHECK(worst({.resolutions = 1}) < 1e-10);
  CHECK(worst({.nowhere = 0, .only = 2}) < 1e-10);
  CHECK(worst({.nowhere = 2}) == 0);  // all of them
  // Parts of a sample's blocks that are added up.
  CHECK(worst({.b = 1, .n = 5000, .elu = true}) < 1e-10);
  CHECK(worst({.b = 40, .n = 600}) < 1e-10);
}

TEST_CASE("routed features of floats") {
  CHECK(worst({.n = 600, .d = 64}, at::kFloat) < 1e-4);
  CHECK(worst({.n = 600, .d = 64, .elu = true}, at::kFloat) < 1e-4);
}

TEST_CASE("routed features have the same bits on any number of threads") {
  const RoutedTensors given({.b = 3, .n = 3000, .d = 64}, at::kFloat);
  CHECK(same_on_any_threads([&](const Tensors& in) { return given.run(in); }, given.inputs));
}

TEST_CASE("routed features: a token that is lost loses no other, and what goes nowhere is not read") {
  const RoutedTensors given({.nowhere = 0.3});
  const at::Tensor meant = given.run(given.inputs)[0], nowhere = given.chosen.any(-1).logical_not();
  Tensors lost = given.inputs;
  lost[0] = lost[0].masked_fill(nowhere.unsqueeze(-1), NAN);
  CHECK(nowhere.any().item<bool>());
  CHECK(at::equal(given.run(lost)[0], meant));
  const at::Tensor own = given.chosen.any(-1).nonzero()[3];  // of sample 0
  lost[0].select(0, 0).select(0, own[1].item<int64_t>()).fill_(NAN);
  const at::Tensor wrong = given.run(lost)[0].isnan().any(-1);
  CHECK(wrong.sum().item<int64_t>() == 1);
  CHECK(wrong.select(0, 0).select(0, own[1].item<int64_t>()).item<bool>());
}

TEST_CASE("routed features multiply a token by the map and the table of its own resolution alone") {
  const Routed one{.b = 2, .n = 300, .nowhere = 0};
  const RoutedTensors given(one);
  const OpCounter counter;
  static_cast<void>(given.run(given.inputs));
  CHECK(counter.counts().flops == 2 * one.b * one.n * (one.d * one.d + one.d * (one.d / one.sub_heads + 1)));
}

}  // namespace xformer::kernels::routed_features_test
