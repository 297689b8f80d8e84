// Additive attention as a device computes it, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/additive_attention/device.h"
#include "kernels/additive_attention/gradient_programs.h"
#include "kernels/device/occupancy.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::additive_attention_device_test {

namespace {

struct WalkedRows {
  int64_t n = 70, m = 0, d = 8, e = 8;  // m 0: n
  bool padded = false;
  double p = 0.2, spread = 1;
  bool causal = false, gaps = false;

  [[nodiscard]] int64_t keys() const { return m > 0 ? m : n; }
};

// q, k, v, w, then the output's gradient.
Tensors given_of(const WalkedRows& one) {
  const auto heads = [&](const char* name, int64_t rows, int64_t width) {
    return float_heads(name, {2, 2, rows, width}, one.gaps);
  };
  return {heads("q", one.n, one.d) * one.spread, heads("k", one.keys(), one.d) * one.spread,
          heads("v", one.keys(), one.e), random_tensor("w", {2, one.d}, at::kFloat), heads("gradient", one.n, one.e)};
}

AdditiveAttentionOptions options_of(const WalkedRows& one) {
  AdditiveAttentionOptions options;
  options.mask.causal = one.causal;
  if (one.padded) {
    options.mask.key_valid = ragged_flags(2, one.keys());
    options.query_valid = ragged_flags(2, one.n);
  }
  options.dropout = place_of(one.p);
  return options;
}

auto walked_by(WalkOrder order, bool backward) {
  return [=](const AdditiveArguments& a) { run_additive_attention(a, backward, walking(order)); };
}

// The output and the gradients of q, k, v and w.
Tensors walked(const AdditiveAttentionOptions& options, const Tensors& given, WalkOrder order) {
  const AdditiveAttentionForward forward =
      additive_forward_device(given[0], given[1], given[2], given[3], options, walked_by(order, false));
  const AdditiveAttentionGradients found = additive_backward_device(given[4], given[0], given[1], given[2], given[3],
                                                                    forward, options, walked_by(order, true));
  return {forward.out, found.q, found.k, found.v, found.w};
}

double worst_of(const WalkedRows& one) {
  const Tensors given = given_of(one);
  const AdditiveAttentionOptions options = options_of(one);
  return worst_walked(
      [&](WalkOrder order) { return walked(options, given, order); },
      in_double(
          [&](const Tensors& x) { return Tensors{additive_attention_reference(x[0], x[1], x[2], x[3], options)}; },
          Tensors(given.begin(), given.end() - 1), {given[4]}));
}

constexpr double kLikeFloat = 1e-5;

int counted_launches = 0;

auto counts_launches(bool backward) {
  return [backward](const AdditiveArguments& a) {
    run_additive_attention(a, backward, [](const LaunchGrid&, const auto&) { ++counted_launches; });
  };
}

AdditiveAttentionForward counted_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const at::Tensor& w, const AdditiveAttentionOptions& options) {
  return additive_forward_device(q, k, v, w, options, counts_launches(false));
}

AdditiveAttentionGradients counted_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const at::Tensor& w,
                                            const AdditiveAttentionForward& forward,
                                            const AdditiveAttentionOptions& options) {
  return additive_backward_device(gradient, q, k, v, w, forward, options, counts_launches(true));
}

}  // namespace

TEST_CASE("additive attention on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    // Of one key everything cancels but rounding.
    CHECK(worst_of({.n = n, .d = 1 + n % 9, .e = 1 + n % 7, .padded = n % 2 > 0, .causal = n % 3 == 0}) <
          (n == 1 ? 1e-3 : kLikeFloat));
  }
}

TEST_CASE("additive attention on a device: widths, few keys, few queries, causality and strides") {
  const PoisonedMemory poisoned;
  for (const int64_t width : {1, 7, 8, 16, 17, 32, 33, 48, 64}) {
    CAPTURE(width);
    CHECK(worst_of({.n = 35, .d = width, .e = 8}) < kLikeFloat);
    CHECK(worst_of({.n = 35, .d = 8, .e = width, .padded = true}) < kLikeFloat);
  }
  CHECK(worst_of({.n = 3, .m = 150, .d = 32, .e = 32}) < kLikeFloat);
  CHECK(worst_of({.n = 150, .m = 3, .padded = true, .p = 0}) < kLikeFloat);
  CHECK(worst_of({.n = 140, .padded = true, .causal = true}) < kLikeFloat);
  CHECK(worst_of({.n = 66, .d = 5, .causal = true, .gaps = true}) < kLikeFloat);
}

TEST_CASE("additive attention on a device: where tanh is 1 or -1, and e^2x more than a float holds") {
  const PoisonedMemory poisoned;
  for (const double spread : {10.0, 60.0, 1000.0}) {
    CAPTURE(spread);
    const WalkedRows one{.n = 40, .spread = spread};
    const Tensors given = given_of(one), found = walked(options_of(one), given, WalkOrder::kForward);
    for (const at::Tensor& x : found) CHECK(x.isfinite().all().item<bool>());
    // q + k is rounded where it is large, and tanh is steep where it is small.
    CHECK(worst_of(one) < spread * kLikeFloat);
  }
}

TEST_CASE("additive attention on a device drops the elements that dropout of all weights drops") {
  const WalkedRows one{.n = 33, .m = 64, .e = 64, .p = 0.4};
  Tensors given = given_of(one);
  given[2] = at::eye(64).expand({2, 2, 64, 64});
  const AdditiveAttentionOptions options = options_of(one);
  const at::Tensor weights = walked(options, given, WalkOrder::kForward)[0];
  CHECK(at::equal(weights.gt(0), options.dropout(at::ones({2, 2, 33, 64})).gt(0)));
}

TEST_CASE("additive attention on a device: a sample without a key or a query gives zero, and zero gradients") {
  const PoisonedMemory poisoned;
  const WalkedRows one{.n = 9};
  const Tensors given = given_of(one);
  for (const bool of_keys : {true, false}) {
    AdditiveAttentionOptions options = options_of(one);
    at::Tensor& flags = of_keys ? options.mask.key_valid : options.query_valid;
    flags = at::ones({2, 9}, at::kBool);
    flags[0].zero_();
    Tensors found = walked(options, given, WalkOrder::kForward);
    CHECK(found.back().isfinite().all().item<bool>());
    found.pop_back();
    for (const at::Tensor& x : found) {
      CHECK(x[0].abs().max().item<float>() == 0);
      CHECK(x[1].isfinite().all().item<bool>());
      CHECK(x[1].abs().max().item<float>() > 0);
    }
  }
}

TEST_CASE("additive attention on a device: what stands in padding does not matter") {
  const PoisonedMemory poisoned;
  const WalkedRows one{.n = 70, .padded = true};
  const Tensors given = given_of(one), clean = walked(options_of(one), given, WalkOrder::kForward);
  Tensors lost = given;
  for (const size_t i : {0, 1, 2, 4}) lost[i] = lost_padding(given[i], ragged_flags(2, 70));
  const Tensors found = walked(options_of(one), lost, WalkOrder::kForward);
  for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], clean[i]));
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of additive attention runs them: one launch forwards, two backwards") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("additive_attention_forward", dispatched<counted_forward>);
  library.impl("additive_attention_backward", dispatched<counted_backward>);
  const auto launches = [&](at::ScalarType type, int64_t width) {
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const Tensors inputs{leaf({2, 3, 40, width}), leaf({2, 3, 50, width}), leaf({2, 3, 50, 8}), leaf({3, width})};
    const at::Tensor out = additive_attention(inputs[0], inputs[1], inputs[2], inputs[3], {});
    CHECK(out.sizes() == at::IntArrayRef({2, 3, 40, 8}));
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    return std::exchange(counted_launches, 0);
  };
  CHECK(launches(at::kFloat, 32) == 3);
  CHECK(launches(at::kFloat, kAdditiveWidest) == 3);
  CHECK(launches(at::kFloat, kAdditiveWidest + 1) == 0);  // the definition
  CHECK(launches(at::kDouble, 32) == 0);
}

TEST_CASE("plans of additive attention fit a device at any size") {
  constexpr auto fits = [](int64_t heads, int64_t rows, int64_t) {
    return launch_fits<AdditiveForwardProgram<32>>(additive_grid<32>(heads, rows)) &&
           launch_fits<AdditiveQueryProgram<64>>(additive_grid<64>(heads, rows)) &&
           launch_fits<AdditiveKeyProgram<64>>(additive_grid<64>(heads, rows));
  };
  STATIC_REQUIRE(all_fit({1, 64}, fits));
  const auto taken = [](int64_t n, int64_t m) {
    const at::Tensor q = at::empty({1, 1, n, 1}, at::kMeta), k = at::empty({1, 1, m, 1}, at::kMeta);
    return fits_additive_programs(q, k, k);
  };
  CHECK(taken(kMostNumbered, kMostNumbered));
  CHECK_FALSE((taken(kMostNumbered + 1, 1) || taken(1, kMostNumbered + 1)));
  for (const int64_t heads : {int64_t{1}, int64_t{512}, int64_t{1} << 16})
    for (const int64_t n : {int64_t{1}, int64_t{65}, int64_t{2048}, int64_t{1} << 20})
      for (const int64_t m : {int64_t{1}, int64_t{64}, int64_t{1} << 20})
        for (const int width : {1, 32, 33, 64}) {
          if (heads * std::max(n, m) > int64_t{1} << 32) continue;
          CAPTURE(heads, n, m, width);
          AdditiveArguments a;
          a.b = heads, a.h = 1, a.n = n, a.m = m, a.d = width, a.e = 1;
          std::vector<int64_t> blocks;
          const auto check = [&](const LaunchGrid& grid, const auto& program) {
            using Program = std::decay_t<decltype(program)>;
            blocks.push_back(grid.blocks);
            CHECK((grid.blocks <= kMostBlocks && grid.shared_bytes <= kMostSharedBytes));
            // As many at a time as its registers are kept few for.
            CHECK(resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) >= Program::kResident);
          };
          run_additive_attention(a, /*backward=*/false, check);
          run_additive_attention(a, /*backward=*/true, check);
          CHECK(blocks == std::vector<int64_t>{heads * tiles_of(n), heads * tiles_of(n), heads * tiles_of(m)});
        }
}

}  // namespace xformer::kernels::additive_attention_device_test
