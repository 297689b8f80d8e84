// Attention by alpha-entmax as a device computes it, walked on the CPU, against the definition in double precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/device/occupancy.h"
#include "kernels/entmax_attention/device.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "policy_scope.h"

namespace xformer::kernels::entmax_attention_device_test {

namespace {

struct WalkedEntmax {
  double alpha = 0;                       // 0: 1.05 and 1.7 of two heads, 1.7 of one
  int64_t n = 70, m = 0, d = 16, e = 16;  // m 0: n
  bool padded = false;
  double p = 0.2, spread = 2;
  bool causal = false, tf32 = false, gaps = false;
  int64_t h = 2;
  bool both_orders = true;

  [[nodiscard]] int64_t keys() const { return m > 0 ? m : n; }
};

// q, k, v and, where it is learned, alpha; then the output's gradient.
Tensors given_of(const WalkedEntmax& one) {
  const auto heads = [&](const char* name, int64_t rows, int64_t width) {
    return float_heads(name, {2, one.h, rows, width}, one.gaps);
  };
  Tensors given{heads("q", one.n, one.d) * one.spread, heads("k", one.keys(), one.d), heads("v", one.keys(), one.e)};
  if (one.alpha == 0) given.push_back(at::tensor({1.05F, 1.7F}).narrow(0, 2 - one.h, one.h));
  given.push_back(heads("gradient", one.n, one.e));
  return given;
}

EntmaxAttentionOptions options_of(const WalkedEntmax& one) {
  EntmaxAttentionOptions options;
  options.rows.scale = 1 / std::sqrt(static_cast<double>(one.d));
  options.rows.mask.causal = one.causal;
  if (one.padded) {
    options.rows.mask.key_valid = ragged_flags(2, one.keys());
    options.rows.query_valid = ragged_flags(2, one.n);
  }
  options.rows.dropout = place_of(one.p);
  options.alpha = one.alpha;
  return options;
}

auto walked_by(WalkOrder order, bool backward) {
  return [=](const EntmaxArguments& a) { run_entmax_attention(a, backward, walking(order)); };
}

// The output and the gradients of q, k, v and alpha.
Tensors walked(const WalkedEntmax& one, const Tensors& given, WalkOrder order) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const EntmaxAttentionOptions options = options_of(one);
  const at::Tensor alpha = one.alpha == 0 ? given[3] : at::Tensor();
  const EntmaxAttentionForward forward =
      entmax_forward_device(given[0], given[1], given[2], alpha, options, walked_by(order, false));
  const EntmaxAttentionGradients found = entmax_backward_device(given.back(), given[0], given[1], given[2], alpha,
                                                                forward, options, walked_by(order, true));
  at::globalContext().setAllowTF32CuBLAS(false);
  Tensors result{forward.out, found.q, found.k, found.v};
  if (found.alpha.defined()) result.push_back(found.alpha);
  return result;
}

double worst_of(const WalkedEntmax& one) {
  const Tensors given = given_of(one);
  const PolicyScope plain(Policy::kReference);
  const Tensors meant = in_double(
      [&](const Tensors& x) {
        return Tensors{
            entmax_attention_reference(x[0], x[1], x[2], x.size() > 3 ? x[3] : at::Tensor(), options_of(one))};
      },
      Tensors(given.begin(), given.end() - 1), {given.back()});
  if (!one.both_orders) return worst_from(walked(one, given, WalkOrder::kForward), meant);
  return worst_walked([&](WalkOrder order) { return walked(one, given, order); }, meant);
}

constexpr double kLikeFloat = 2e-5, kLikeTf32 = 1e-2;
constexpr double kAlphas[] = {2, 1.5, 0};

int counted_launches = 0;

auto counts_launches(bool backward) {
  return [backward](const EntmaxArguments& a) {
    run_entmax_attention(a, backward, [](const LaunchGrid&, const auto&) { ++counted_launches; });
  };
}

EntmaxAttentionForward counted_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const at::Tensor& alpha, const EntmaxAttentionOptions& options) {
  return entmax_forward_device(q, k, v, alpha, options, counts_launches(false));
}

EntmaxAttentionGradients counted_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const at::Tensor& alpha,
                                          const EntmaxAttentionForward& forward,
                                          const EntmaxAttentionOptions& options) {
  return entmax_backward_device(gradient, q, k, v, alpha, forward, options, counts_launches(true));
}

}  // namespace

TEST_CASE("entmax on a device: every length from 1 to 130, near tiles' borders two heads in two orders") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    const double alpha = kAlphas[n % 3];
    const bool near = near_border(n);
    CAPTURE(n, alpha);
    // Of one key everything cancels but rounding, and of a learned alpha's gradient, one sum over all weights, much.
    CHECK(worst_of({.alpha = alpha, .n = n, .padded = n > 2, .h = near ? 2 : 1, .both_orders = near}) <
          (n == 1       ? 1e-3
           : alpha == 0 ? 5 * kLikeFloat
                        : kLikeFloat));
  }
}

TEST_CASE("entmax on a device: widths, few keys, causality, strides and products") {
  const PoisonedMemory poisoned;
  for (const double alpha : kAlphas) {
    CAPTURE(alpha);
    CHECK(worst_of({.alpha = alpha, .n = 66, .d = 32, .causal = true}) < kLikeFloat);
    CHECK(worst_of({.alpha = alpha, .n = 20, .m = 100, .d = 5, .e = 7, .p = 0}) < kLikeFloat);
  }
  CHECK(worst_of({.alpha = 1.5, .n = 40, .d = 64, .e = 48, .padded = true, .causal = true}) < kLikeFloat);
  CHECK(worst_of({.alpha = 1.3, .n = 70, .m = 9, .gaps = true}) < kLikeFloat);
  CHECK(worst_of({.n = 5, .m = 80, .causal = true}) < kLikeFloat);
  CHECK(worst_of({.alpha = 1.5, .n = 40, .m = 80, .d = 32, .e = 32, .tf32 = true}) < kLikeTf32);
  // TF32 is not float: the bound of one would catch the other.
  CHECK(worst_of({.alpha = 1.5, .n = 40, .m = 80, .d = 32, .e = 32, .tf32 = true}) > 10 * kLikeFloat);
}

TEST_CASE("entmax on a device: rows sum to 1 whatever alpha and scores are, and nearly equal ones too") {
  for (const double alpha : {1.01, 1.2, 1.5, 1.9, 2.0})
    for (const double spread : {0.01, 1.0, 30.0}) {
      CAPTURE(alpha, spread);
      const WalkedEntmax one{.alpha = alpha, .n = 3, .m = 140, .p = 0, .spread = spread};
      const Tensors given = given_of(one);
      const EntmaxAttentionForward found = entmax_forward_device(
          given[0], given[1], at::ones_like(given[2]), {}, options_of(one), walked_by(WalkOrder::kForward, false));
      CHECK((found.out - 1).abs().max().item<float>() < 2e-6);
    }
}

TEST_CASE("entmax on a device drops the elements that dropout of all weights drops") {
  // Values tell the keys apart, and alpha near 1 leaves none of them out.
  const WalkedEntmax one{.alpha = 1.01, .n = 33, .m = 64, .e = 64, .p = 0.4, .spread = 0.5};
  Tensors given = given_of(one);
  given[2] = at::eye(64).expand({2, 2, 64, 64});
  const EntmaxAttentionOptions options = options_of(one);
  const at::Tensor weights =
      entmax_forward_device(given[0], given[1], given[2], {}, options, walked_by(WalkOrder::kForward, false)).out;
  CHECK(at::equal(weights.gt(0), options.rows.dropout(at::ones({2, 2, 33, 64})).gt(0)));
}

TEST_CASE("entmax on a device: a sample without a key or a query gives zero, and zero gradients") {
  const PoisonedMemory poisoned;
  for (const double alpha : kAlphas) {
    const WalkedEntmax one{.alpha = alpha, .n = 9};
    for (const bool of_keys : {true, false}) {
      const Tensors given = given_of(one);
      EntmaxAttentionOptions options = options_of(one);
      at::Tensor& flags = of_keys ? options.rows.mask.key_valid : options.rows.query_valid;
      flags = at::ones({2, 9}, at::kBool);
      flags[0].zero_();
      const at::Tensor learned = alpha == 0 ? given[3] : at::Tensor();
      const EntmaxAttentionForward forward =
          entmax_forward_device(given[0], given[1], given[2], learned, options, walked_by(WalkOrder::kForward, false));
      const EntmaxAttentionGradients found = entmax_backward_device(
          given.back(), given[0], given[1], given[2], learned, forward, options, walked_by(WalkOrder::kForward, true));
      for (const at::Tensor& x : {forward.out, found.q, found.k, found.v}) {
        CHECK(x[0].abs().max().item<float>() == 0);
        CHECK(x[1].isfinite().all().item<bool>());
        CHECK(x[1].abs().max().item<float>() > 0);
      }
    }
  }
}

TEST_CASE("entmax on a device: what stands in padding does not matter") {
  const PoisonedMemory poisoned;
  const WalkedEntmax one{.n = 70, .padded = true};
  const Tensors given = given_of(one), clean = walked(one, given, WalkOrder::kForward);
  const at::Tensor flags = ragged_flags(2, 70);
  Tensors lost = given;
  for (const size_t i : {0, 1, 2, 4}) lost[i] = lost_padding(given[i], flags);
  const Tensors found = walked(one, lost, WalkOrder::kForward);
  for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], clean[i]));
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of entmax runs them: one launch forwards, two backwards") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("entmax_attention_forward", dispatched<counted_forward>);
  library.impl("entmax_attention_backward", dispatched<counted_backward>);
  const auto launches = [&](double alpha) {
    const auto leaf = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(at::kFloat)).requires_grad_(true);
    };
    Tensors inputs{leaf({2, 3, 40, 64}), leaf({2, 3, 50, 64}), leaf({2, 3, 50, 64})};
    if (alpha == 0) inputs.push_back(leaf({3}));
    EntmaxAttentionOptions options;
    options.alpha = alpha;
    const at::Tensor out =
        entmax_attention(inputs[0], inputs[1], inputs[2], alpha == 0 ? inputs[3] : at::Tensor(), options);
    CHECK(out.sizes() == inputs[0].sizes());
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    return std::exchange(counted_launches, 0);
  };
  for (const double alpha : {0.0, 1.3, 2.0}) CHECK(launches(alpha) == 3);
  const auto fits = [](at::ScalarType type, int64_t d, double alpha) {
    const at::Tensor x = at::empty({1, 1, 2, d}, type);
    EntmaxAttentionOptions options;
    options.alpha = alpha;
    return fits_entmax_programs(x, x, options);
  };
  CHECK(fits(at::kFloat, kAttentionWidest, 0));
  CHECK_FALSE(fits(at::kFloat, kAttentionWidest, 1));
  CHECK_FALSE(fits(at::kFloat, kAttentionWidest + 1, 0));
  CHECK_FALSE(fits(at::kDouble, 32, 0));
}

TEST_CASE("plans of entmax fit a device at any size") {
  constexpr auto fits = [](int64_t heads, int64_t rows, int64_t) {
    constexpr auto kKind = ProductKind::kFloat;
    return launch_fits<EntmaxAttentionForwardProgram<kKind, 32>>(entmax_grid(1, heads, rows, 32, 3)) &&
           launch_fits<EntmaxAttentionQueryProgram<kKind, 64>>(entmax_grid(heads, 1, rows, 64, 4)) &&
           launch_fits<EntmaxAttentionKeyProgram<kKind, 64>>(entmax_grid(heads, 1, rows, 64, 4));
  };
  STATIC_REQUIRE(all_fit({1, 64}, fits));
  const auto taken = [](int64_t n, int64_t m) {
    return fits_entmax_programs(at::empty({1, 1, n, 1}, at::kMeta), at::empty({1, 1, m, 1}, at::kMeta),
                                {.rows = {}, .alpha = 1.5});
  };
  CHECK(taken(kMostNumbered, kMostNumbered));
  CHECK_FALSE((taken(kMostNumbered + 1, 1) || taken(1, kMostNumbered + 1)));
  for (const int64_t heads : {int64_t{1}, int64_t{512}, int64_t{1} << 16})
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{65}, int64_t{2048}, int64_t{1} << 20})
      for (const int64_t m : {int64_t{0}, int64_t{1}, int64_t{64}, int64_t{1} << 20})
        for (const int width : {1, 32, 33, 64})
          for (const bool tf32 : {false, true}) {
            if (heads * std::max(n, m) > int64_t{1} << 32) continue;
            CAPTURE(heads, n, m, width, tf32);
            EntmaxArguments a;
            a.product = tf32 ? ProductKind::kTf32 : ProductKind::kFloat;
            a.b = heads, a.h = 1, a.n = n, a.m = m, a.d = width, a.e = 1;
            std::vector<int64_t> blocks;
            const auto check = [&](const LaunchGrid& grid, const auto& program) {
              using Program = std::decay_t<decltype(program)>;
              blocks.push_back(grid.blocks);
              CHECK((grid.blocks <= kMostBlocks && grid.shared_bytes <= kMostSharedBytes));
              // As many at a time as its registers are kept few for.
              CHECK(resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) >= Program::kResident);
            };
            const auto tiles = [&](int64_t rows) { return heads * ((rows + 63) / 64); };
            run_entmax_attention(a, /*backward=*/false, check);
            run_entmax_attention(a, /*backward=*/true, check);
            std::vector<int64_t> meant{tiles(n)};
            for (const int64_t rows : {n, m})
              if (rows > 0) meant.push_back(tiles(rows));
            CHECK(blocks == meant);
          }
}

}  // namespace xformer::kernels::entmax_attention_device_test
