// The feed-forward part in one operator against its definition: outputs and all gradients, both forms, any shape.
#include "kernels/feed_forward/feed_forward.h"

#include <ATen/Parallel.h>

#include "core/random.h"
#include "fused_support.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/feed_forward/active_rows.h"
#include "kernels/policy.h"
#include "place_support.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

TensorFunction operator_of(bool tanh, double p, bool fused) {
  return [=](const Tensors& x) {
    const auto& function = fused ? feed_forward : feed_forward_reference;
    return Tensors{function(x[0], {x[1], x[2]}, {x[3], x[4]}, tanh, place_of(p), {})};
  };
}

Tensors inputs_of(at::IntArrayRef rows, int64_t m, int64_t f, int64_t k, at::ScalarType type) {
  std::vector<int64_t> shape = rows.vec();
  shape.push_back(m);
  const auto tensor = [&](const char* name, at::IntArrayRef sizes) { return random_tensor(name, sizes, type); };
  return {tensor("x", shape), tensor("in", {f, m}), tensor("in bias", {f}), tensor("out", {k, f}),
          tensor("out bias", {k})};
}

double difference_of(const Tensors& inputs, bool tanh, double p) {
  return worst_difference(operator_of(tanh, p, true), operator_of(tanh, p, false), inputs);
}

}  // namespace

TEST_CASE("the fused feed-forward part equals its definition, with gradients of input, weights and biases") {
  Stream numbers(8);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(numbers.next_below(bound)); };
  for (int turn = 0; turn < 20; ++turn) {
    const int64_t m = 1 + below(70), f = 1 + below(140), k = 1 + below(70);
    const std::vector<int64_t> rows{1 + below(3), 1 + below(300)};
    const double p = below(3) == 0 ? 0 : 0.2;
    for (const bool tanh : {false, true}) {
      CAPTURE(rows, m, f, k, p, tanh);
      CHECK(difference_of(inputs_of(rows, m, f, k, at::kDouble), tanh, p) < 1e-11);
      CHECK(difference_of(inputs_of(rows, m, f, k, at::kFloat), tanh, p) < 2e-5);
    }
  }
  CHECK(difference_of(inputs_of({5000}, 64, 128, 64, at::kDouble), false, 0.1) < 1e-11);  // several parts
}

TEST_CASE("the fused feed-forward part without a gradient of its input, and with rows as they lie") {
  const Tensors inputs = inputs_of({2, 50}, 8, 12, 8, at::kDouble);
  const auto weights_only = [](bool fused) {
    return [fused](const Tensors& x) {
      const auto& function = fused ? feed_forward : feed_forward_reference;
      return Tensors{function(x[0].detach(), {x[1], x[2]}, {x[3], x[4]}, false, place_of(0.1), {})};
    };
  };
  CHECK(worst_difference(weights_only(true), weights_only(false), inputs) < 1e-11);
  Tensors turned = inputs;
  turned[0] = random_tensor("x", {8, 50, 2}).transpose(0, 2);
  CHECK(difference_of(turned, false, 0.1) < 1e-11);
}

TEST_CASE("the fused feed-forward part gives the same bits on any number of threads, and counts its products") {
  const Tensors inputs = inputs_of({7, 300}, 64, 128, 64, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = run_with_gradients(operator_of(false, 0.1, true), inputs);
  at::set_num_threads(5);
  const OpCounter counter;
  const Tensors five = run_with_gradients(operator_of(false, 0.1, true), inputs);
  CHECK(counter.counts().flops == int64_t{3} * 2 * 7 * 300 * (64 * 128 + 128 * 64));
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) CHECK(at::equal(one[i], five[i]));
}

TEST_CASE("--kernels=check holds the feed-forward part against its definition, --kernels=reference runs that") {
  const Tensors inputs = inputs_of({2, 50}, 16, 24, 16, at::kFloat);
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(run_with_gradients(operator_of(false, 0.1, true), inputs));
  set_policy(Policy::kReference);
  CHECK(at::equal(operator_of(true, 0.1, true)(inputs)[0], operator_of(true, 0.1, false)(inputs)[0]));
  set_policy(Policy::kAuto);
}

TEST_CASE("between products of bf16 gelu is fitted, to a hundredth of what rounding does") {
  if (!has_bf16_512()) {
    SUCCEED("only by AVX-512 with bf16 is it fitted");
    return;
  }
  constexpr int64_t kCount = 32000;
  const bool tanh = GENERATE(false, true);
  const at::Tensor x = at::linspace(-9, 9, kCount), none = at::zeros({16}), z = at::empty({kCount}, at::kBFloat16),
                   active = at::empty_like(z);
  by_512::active_rows({kCount / 16, 16, tanh, nullptr, 0, 1}, x.const_data_ptr<float>(), none.const_data_ptr<float>(),
                      z.mutable_data_ptr<c10::BFloat16>(), active.mutable_data_ptr<c10::BFloat16>());
  CHECK(at::equal(z, x.to(at::kBFloat16)));
  const at::Tensor meant = at::gelu(x.to(at::kDouble), tanh ? "tanh" : "none");
  const at::Tensor excess = (active.to(at::kDouble) - meant).abs() - meant.abs() / 256;  // half a unit of 8 bits
  CHECK(excess.max().item<double>() < 2e-5);
}

}  // namespace xformer::kernels
