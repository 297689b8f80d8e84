// The mean over tokens as a device computes it, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/token_mean/device.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::token_mean_device_test {

namespace {

struct WalkedMean {
  int64_t b = 3, n = 20, d = 24, pinned = 0;
  bool ragged = true, padded = false;

  [[nodiscard]] at::Tensor x() const { return random_tensor("x", {b, n, d}, at::kFloat); }
  [[nodiscard]] at::Tensor gradient() const { return random_tensor("gradient", {b, d}, at::kFloat); }
  [[nodiscard]] TokenMeanOptions options() const {
    return {ragged ? ragged_flags(b, n) : at::Tensor(), pinned, padded};
  }
};

// The mean, and the gradient of x.
Tensors walked_mean(const WalkedMean& one, const at::Tensor& x, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const TokenMeanArguments& a) { run_token_mean(a, backward, walking(order)); };
  };
  const TokenMeans made = token_mean_forward_device(x, one.options(), launch(false));
  return {made.mean, token_mean_backward_device(one.gradient(), made.share, one.n, one.options(), launch(true))};
}

double worst_mean(const WalkedMean& one) {
  return worst_walked([&](WalkOrder order) { return walked_mean(one, one.x(), order); },
                      in_double([&](const Tensors& in) { return Tensors{token_mean_reference(in[0], one.options())}; },
                                {one.x()}, {one.gradient()}));
}

constexpr double kLikeFloat = 2e-6;

int counted_means = 0;

void count_mean(const TokenMeanArguments&) { ++counted_means; }

TokenMeans counted_forward(const at::Tensor& x, const TokenMeanOptions& options) {
  return token_mean_forward_device(x, options, count_mean);
}
at::Tensor counted_backward(const at::Tensor& gradient, const at::Tensor& share, int64_t n,
                            const TokenMeanOptions& options) {
  return token_mean_backward_device(gradient, at::empty_like(share, at::kCPU), n, options, count_mean);
}

}  // namespace

TEST_CASE("the mean over tokens on a device: every length from 1 to 130, and longer than a block takes at once") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    CHECK(worst_mean({.n = n, .pinned = n > 2 ? n % 3 : 0, .ragged = n % 4 > 0, .padded = n % 5 == 0}) < kLikeFloat);
  }
  for (const int64_t n : {kMeanTokens - 1, kMeanTokens, kMeanTokens + 1, 3 * kMeanTokens + 5}) {
    CAPTURE(n);
    CHECK(worst_mean({.n = n}) < kLikeFloat);
  }
}

TEST_CASE("the mean over tokens on a device: widths, and what is divided by") {
  const PoisonedMemory poisoned;
  for (const int64_t d : {1, 7, 8, 31, 32, 33, 64, 100, 256, 300}) {
    CAPTURE(d);
    CHECK(worst_mean({.d = d, .pinned = 1}) < kLikeFloat);
    CHECK(worst_mean({.d = d, .ragged = false, .padded = true}) < kLikeFloat);
    CHECK(worst_mean({.d = d, .pinned = 2, .padded = true}) < kLikeFloat);
  }
}

TEST_CASE("the mean over tokens on a device: what does not count is not read") {
  const WalkedMean one{.n = 40, .pinned = 1};
  at::Tensor lost = lost_padding(one.x(), one.options().valid);
  lost.narrow(1, 0, 1).fill_(NAN);
  const Tensors got = walked_mean(one, lost, WalkOrder::kForward),
                clean = walked_mean(one, one.x(), WalkOrder::kForward);
  for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i], clean[i]));
  CHECK(got[0][2].eq(0).all().item<bool>());  // a sequence of which nothing counts
}

TEST_CASE("the mean over tokens: launches at extreme shapes") {
  constexpr auto fits = [](int64_t b, int64_t n, int64_t d) {
    return launch_fits<TokenMeanForwardProgram>(token_mean_grid(b, d)) &&
           launch_fits<TokenMeanBackwardProgram>(row_grid(b * n, d, kSpreadThreads)) &&
           is_division(mean_blocks(d), kMeanColumns, d);
  };
  STATIC_REQUIRE(all_fit({1, 64, 1 << 14, kMostNumbered}, fits));
  STATIC_REQUIRE(token_mean_grid(1, 1).blocks == 1);
  STATIC_REQUIRE(token_mean_grid(1, 1).shared_bytes <= 48 * 1024);
  const auto taken = [](int64_t n, int64_t d) { return fits_token_mean_programs(at::empty({1, n, d}, at::kMeta)); };
  CHECK((taken(kMostNumbered, 1) && taken(1, kMostNumbered)));
  CHECK_FALSE((taken(kMostNumbered + 1, 1) || taken(1, kMostNumbered + 1)));
}

TEST_CASE("a device with kernels of the mean over tokens runs them: one launch each way") {
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("token_mean_forward", dispatched<counted_forward>);
  library.impl("token_mean_backward", dispatched<counted_backward>);
  const auto launches = [&](at::ScalarType type) {
    counted_means = 0;
    const at::Tensor x = at::empty({2, 20, 8}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    const at::Tensor mean = token_mean(x, {{}, 1, false});
    CHECK(mean.sizes() == at::IntArrayRef({2, 8}));
    CHECK(torch::autograd::grad({mean}, {x}, {at::ones_like(mean)})[0].sizes() == x.sizes());
    return counted_means;
  };
  CHECK(launches(at::kFloat) == 2);
  CHECK(launches(at::kDouble) == 0);  // the definition
}

}  // namespace xformer::kernels::token_mean_device_test
