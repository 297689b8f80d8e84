// Feature attention as a device computes it, walked on the CPU, against the definition in double precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "feature_attention_support.h"
#include "kernels/feature_attention/device.h"
#include "kernels/operator.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::feature_attention_device_test {

namespace {

struct WalkedFeatures {
  Form form = Form::kSoftmax;
  int64_t n = 70, m = 70, d = 16, e = 16, f = 24;
  int64_t valid_keys = -1;     // of sample 0, with a hole; -1: all, sample 1 always has all
  int64_t valid_queries = -1;  // likewise
  int64_t first_keys = 0;      // of sample 0 that do not count
  double floor = -1;           // -1: the form's, which lets c matter little
  bool causal = false, tf32 = false, gaps = false;
  at::ScalarType type = at::kFloat;  // of heads
};

at::Tensor heads_of(const std::string& name, const WalkedFeatures& one, int64_t rows, int64_t width) {
  // As a projection leaves them; with gaps between rows and the last axis not the fastest.
  if (one.gaps) return random_tensor(name, {2, 1, width, rows}, at::kFloat).to(one.type).transpose(2, 3);
  return random_tensor(name, {2, rows, 1, width}, at::kFloat).to(one.type).transpose(1, 2);
}

at::Tensor flags_of(int64_t rows, int64_t valid) {
  if (valid < 0) return {};
  at::Tensor flags = at::ones({2, rows}, at::kBool);
  flags[0].narrow(0, valid, rows - valid).zero_();
  if (valid > 3) flags[0][1] = false;
  return flags;
}

FeatureAttentionOptions options_of(const WalkedFeatures& one) {
  FeatureAttentionOptions options = options_of(one.form, one.d, one.f, at::kFloat);
  options.mask.key_valid = flags_of(one.m, one.valid_keys);
  if (one.first_keys > 0) options.mask.key_valid[0].narrow(0, 0, one.first_keys).zero_();
  if (one.floor >= 0) options.floor = one.floor;
  options.mask.causal = one.causal;
  options.query_valid = flags_of(one.n, one.valid_queries);
  return options;
}

Tensors operands_of(const WalkedFeatures& one) {
  return {heads_of("q", one, one.n, one.d), heads_of("k", one, one.m, one.d), heads_of("v", one, one.m, one.e),
          heads_of("gradient", one, one.n, one.e)};
}

// Output and gradients of q, k and v.
Tensors walked(const WalkedFeatures& one, const Tensors& given, WalkOrder order) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const FeatureAttentionOptions options = options_of(one);
  const auto launch = [order](const FeatureArguments& a) {
    run_feature_stage<WalkedTypes>(
        a, [order](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); });
  };
  const FeatureAttentionForward forward =
      feature_attention_forward_device(given[0], given[1], given[2], options, launch);
  const FeatureAttentionGradients found =
      feature_attention_backward_device(given[3], given[0], given[1], given[2], forward, options, launch);
  at::globalContext().setAllowTF32CuBLAS(false);
  return {forward.out, found.q, found.k, found.v};
}

Tensors defined(const WalkedFeatures& one, const Tensors& given) {
  FeatureAttentionOptions options = options_of(one);
  if (options.omega.defined()) options.omega = options.omega.to(at::kDouble);
  Tensors leaves;
  for (size_t i = 0; i < 3; ++i) leaves.push_back(given[i].to(at::kDouble).detach().requires_grad_(true));
  const at::Tensor out = feature_attention_reference(leaves[0], leaves[1], leaves[2], options);
  Tensors result = torch::autograd::grad({out}, leaves, {given[3].to(at::kDouble)});
  result.insert(result.begin(), out.detach());
  return result;
}

double worst_of(const WalkedFeatures& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  const Tensors given = operands_of(one);
  return worst_walked([&](WalkOrder order) { return walked(one, given, order); }, defined(one, given), both_orders,
                      first);
}

// The slope of relu jumps where y is next to zero.
constexpr double kLikeFloat = 1e-5, kLikeTf32 = 1e-1;

// Heads in 16 bits, in two orders. What is meant is of the same rounded heads.
void check_halves(const WalkedFeatures& one) {
  CAPTURE(one.type, static_cast<int>(one.form), one.n, one.d, one.causal);
  const double rounding = one.type == at::kHalf ? 1.0 / 2048 : 1.0 / 256;
  const Tensors given = operands_of(one);
  const auto typed = [&](WalkOrder order) {
    Tensors got = walked(one, given, order);
    for (const at::Tensor& x : got) CHECK(x.scalar_type() == one.type);
    return got;
  };
  CHECK(worst_walked(typed, defined(one, given)) < (one.form == Form::kRelu ? kLikeTf32 : 6 * rounding));
}

int counted_launches = 0;

void count_stage(const FeatureArguments& a) {
  run_feature_stage<WalkedTypes>(a, [](const LaunchGrid&, const auto&) { ++counted_launches; });
}

FeatureAttentionForward counted_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const FeatureAttentionOptions& options) {
  return feature_attention_forward_device(q, k, v, options, count_stage);
}

FeatureAttentionGradients counted_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const FeatureAttentionForward& forward,
                                           const FeatureAttentionOptions& options) {
  return feature_attention_backward_device(gradient, q, k, v, forward, options, count_stage);
}

// All launches of either form, where the table of all heads is held.
constexpr bool features_fit(int64_t heads, int64_t rows, int64_t f) {
  constexpr int kWidth = kFeatureHeadWidest;
  constexpr auto kKind = ProductKind::kFloat;
  if (!is_held(heads, f, kWidth + 1)) return true;
  FeatureArguments a;
  a.causal = true, a.map = FeatureMap::kSoftmax;
  a.b = heads, a.h = 1, a.d = a.e = kWidth, a.f = static_cast<int>(f), a.q.rows = a.k.rows = rows;
  const RowDivision division = feature_division(heads, rows, f);
  const LaunchGrid shifts = feature_shift_grid(heads, rows, rows, kWidth);
  return is_division(division.parts, division.part_tiles, tiles_of(rows)) &&
         // A block of queries and one of keys for each head are more than there can be, and refused.
         (heads == kMostBlocks ? shifts.blocks == 2 * heads
                               : launch_fits<FeatureShiftProgram<float, kKind, kWidth>>(shifts)) &&
         launch_fits<KeyLargestProgram>(key_largest_grid(heads)) &&
         launch_fits<KeyWinnerProgram<float>>(key_winner_grid(heads)) &&
         launch_fits<CausalWinnerProgram<float>>(causal_winner_grid(heads, rows)) &&
         launch_fits<FeatureSumsProgram<float, kKind, kWidth, true, true>>(feature_sums_grid(heads, rows, f, kWidth)) &&
         launch_fits<FeatureScanProgram<true>>(feature_scan_grid(heads, a.table_size())) &&
         launch_fits<FeatureBackwardProgram<float, kKind, kWidth, true>>(feature_rows_grid(heads, rows, kWidth, 4)) &&
         launch_fits<CausalBackwardProgram<float, kKind, kWidth, true>>(causal_grid(heads, rows, kWidth, true));
}

}  // namespace

TEST_CASE("feature attention on a device: every length from 1 to 130, every map, full and causal, in two orders") {
  const PoisonedMemory poisoned;
  for (const bool causal : {false, true})
    for (const Form form : kForms)
      for (int64_t n = 1; n <= 130; ++n) {
        // Away from tiles' borders a length has one of the maps, full or causal, and one order. Near them it has all,
        // of each map one of both forms in two orders.
        const auto turn = static_cast<size_t>(n);
        const bool near = near_border(n), own = causal == (turn % 2 == 1);
        if (!near && (kForms[turn / 2 % std::size(kForms)] != form || !own)) continue;
        CAPTURE(causal, static_cast<int>(form), n);
        // Of one key everything cancels but rounding.
        const WalkedFeatures one{.form = form, .n = n, .m = n, .valid_keys = n > 2 ? n - n / 3 : -1, .causal = causal};
        CHECK(worst_of(one, near && own, order_at(n)) < (n == 1 ? 1e-2 : kLikeFloat));
      }
}

TEST_CASE("feature attention on a device: widths, features, padding and strides, in two orders") {
  const PoisonedMemory poisoned;
  for (const Form form : kForms) {
    CAPTURE(static_cast<int>(form));
    CHECK(worst_of({.form = form, .d = 32, .e = 32, .f = 64}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .d = 5, .e = 7, .f = 6}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .d = 64, .e = 48, .f = 130}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .d = 40, .e = 8, .f = 200}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .n = 130, .m = 16}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .n = 9, .m = 200}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .n = 100, .m = 72, .valid_keys = 65, .valid_queries = 66}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .gaps = true}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .d = 32, .e = 32, .f = 96, .tf32 = true}, true) < kLikeTf32);
    // TF32 is not float: the bound of one would catch the other.
    CHECK(worst_of({.form = form, .d = 32, .e = 32, .f = 96, .tf32 = true}) > 10 * kLikeFloat);
  }
}

TEST_CASE("feature attention on a device: heads in bf16 and fp16, full and causal, in two orders") {
  const PoisonedMemory poisoned;
  for (const Form form : kForms) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
      for (const bool causal : {false, true}) {
        WalkedFeatures one{.form = form, .n = 100, .m = 100, .valid_keys = 65, .causal = causal, .type = type};
        for (const auto& [d, e, f] : {std::array<int64_t, 3>{32, 32, 64}, {5, 7, 6}, {64, 48, 130}}) {
          one.d = d, one.e = e, one.f = f;
          check_halves(one);
        }
      }
    // Near tiles' borders types take turns, and so do full and causal. Of fewer keys most cancels, and what is left of
    // gradients is little beside roundings.
    for (const int64_t n : {5, 6, 8, 9, 61, 62, 63, 64, 65, 66, 67, 127, 128, 129, 130})
      check_halves({.form = form,
                    .n = n,
                    .m = n,
                    .valid_keys = n - n / 3,
                    .causal = n % 2 == 1,
                    .type = n / 2 % 2 == 1 ? at::kHalf : at::kBFloat16});
  }
}

TEST_CASE("causal feature attention on a device: widths, features, padding and many rows, in two orders") {
  const PoisonedMemory poisoned;
  for (const Form form : kForms) {
    CAPTURE(static_cast<int>(form));
    CHECK(worst_of({.form = form, .n = 200, .m = 200, .d = 32, .e = 32, .f = 64, .causal = true}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .n = 100, .m = 100, .d = 5, .e = 7, .f = 6, .causal = true}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .n = 130, .m = 130, .d = 64, .e = 64, .f = 130, .causal = true}) < kLikeFloat);
    CHECK(worst_of({.form = form, .n = 210, .m = 210, .valid_keys = 70, .valid_queries = 201, .causal = true}, true) <
          kLikeFloat);
    CHECK(worst_of({.form = form, .n = 210, .m = 210, .valid_keys = 201, .valid_queries = 70, .causal = true}, true) <
          kLikeFloat);
    CHECK(worst_of({.form = form, .causal = true, .gaps = true}, true) < kLikeFloat);
    CHECK(worst_of({.form = form, .n = 100, .m = 100, .d = 32, .e = 32, .causal = true, .tf32 = true}, true) <
          kLikeTf32);
  }
}

TEST_CASE("feature attention on a device: several parts of several tiles each, full and causal") {
  const PoisonedMemory poisoned;
  for (const bool causal : {false, true}) {
    const WalkedFeatures one{.n = 270, .m = 270, .d = 8, .e = 8, .f = 130, .floor = 0.2, .causal = causal};
    Tensors given;
    for (const std::string name : {"q", "k", "v", "gradient"})
      given.push_back(random_tensor(name, {22, 1, one.n, one.d}, at::kFloat));
    for (const int64_t place : {100, 200, 260}) given[1].select(2, place).mul_(place * 0.02);
    const RowDivision division = feature_division(given[0].size(0), one.n, one.f);
    CHECK((division.parts == 3 && division.part_tiles == 2));
    CHECK(feature_division(300, one.n, one.f).parts == 1);
    const Tensors got = walked(one, given, WalkOrder::kForward), meant = defined(one, given);
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), meant[i]) < 10 * kLikeFloat);
  }
}

TEST_CASE("causal feature attention on a device: c that rises, of equal keys the last, and none at first") {
  const PoisonedMemory poisoned;
  WalkedFeatures one{.n = 270, .m = 270, .f = 72, .valid_keys = 260, .floor = 0.2, .causal = true};
  Tensors given = operands_of(one);
  FeatureAttentionOptions options = options_of(one);
  given[1].mul_(0.2);  // with small keys, features are large beside the floor
  for (const int64_t place : {13, 70, 129, 200, 259})
    given[1].select(2, place).copy_(options.omega[66] * (place < 200 ? 0.5 : 0.6));
  const auto compare = [&] {
    const Tensors got = walked(one, given, WalkOrder::kForward), meant = defined(one, given);
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), meant[i]) < 5 * kLikeFloat);
  };
  compare();
  one.first_keys = 80;
  compare();
}

TEST_CASE("feature attention on a device: a sample without a key or a query gives zero, and zero gradients") {
  const PoisonedMemory poisoned;
  for (const Form form : kForms)
    for (WalkedFeatures one :
         {WalkedFeatures{.valid_keys = 0}, WalkedFeatures{.valid_queries = 0},
          WalkedFeatures{.valid_keys = 0, .causal = true}, WalkedFeatures{.valid_queries = 0, .causal = true}}) {
      one.form = form;
      CHECK(worst_of(one, true) < kLikeFloat);
      for (const WalkOrder order : {WalkOrder::kForward, WalkOrder::kBackward})
        for (const at::Tensor& x : walked(one, operands_of(one), order)) CHECK(x[0].abs().max().item<float>() == 0);
    }
}

TEST_CASE("feature attention on a device: what stands in padding does not matter") {
  const PoisonedMemory poisoned;
  for (const bool causal : {false, true})
    for (const Form form : kForms) {
      const WalkedFeatures one{.form = form, .valid_keys = 40, .valid_queries = 50, .causal = causal};
      const Tensors given = operands_of(one), clean = walked(one, given, WalkOrder::kForward);
      for (const size_t i : {1, 2}) given[i][0].narrow(1, 40, 30).fill_(NAN);
      for (const size_t i : {0, 3}) given[i][0].narrow(1, 50, 20).fill_(NAN);
      for (const WalkOrder order : {WalkOrder::kForward, WalkOrder::kBackward}) {
        const Tensors lost = walked(one, given, order);
        for (size_t i = 0; i < lost.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
      }
    }
}

TEST_CASE(
    "feature attention on a device: scores far from zero, and of equal largest keys the first takes c's gradient") {
  const PoisonedMemory poisoned;
  const WalkedFeatures one{.n = 90, .m = 140, .f = 72, .valid_keys = 130, .floor = 0.2};
  const Tensors given = operands_of(one);
  const at::Tensor omega = options_of(one).omega;
  given[1].mul_(0.2);  // with small keys, features are large beside the floor
  for (const int64_t place : {13, 70, 129}) given[1].select(2, place).copy_(omega[66] * 0.5);
  given[0].mul_(4);
  const Tensors got = walked(one, given, WalkOrder::kForward), meant = defined(one, given);
  for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), meant[i]) < 5 * kLikeFloat);
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of feature attention runs them: two launches forwards, three backwards") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("feature_attention_forward", dispatched<counted_forward>);
  library.impl("feature_attention_backward", dispatched<counted_backward>);
  const auto launches = [&](Form form, at::ScalarType type, int64_t d, int64_t flops, bool causal = false) {
    FeatureAttentionOptions options = options_of(form, d, 96, type);
    options.mask.causal = causal;
    if (options.omega.defined()) options.omega = options.omega.to(at::kMeta);
    const auto leaf = [&](int64_t rows) {
      return at::empty({2, 3, rows, d}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    const int64_t keys = causal ? 10 : 12;
    const Tensors inputs{leaf(10), leaf(keys), leaf(keys)};
    const OpCounter counter;
    const at::Tensor out = feature_attention(inputs[0], inputs[1], inputs[2], options);
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    if (flops > 0) CHECK(counter.counts().flops == flops);
    return std::exchange(counted_launches, 0);
  };
  const int64_t heads = 2 * 2 * 3;  // two for an addition and a product
  CHECK(launches(Form::kElu, at::kFloat, 64, heads * 64 * (10 * (3 * 64 + 3) + 12 * (3 * 64 + 2))) == 5);
  CHECK(launches(Form::kEluPlain, at::kFloat, 64, heads * 64 * (10 * 3 * 64 + 12 * 3 * 64)) == 5);
  CHECK(launches(Form::kRelu, at::kFloat, 32, heads * 96 * (10 * (7 * 32 + 3) + 12 * (6 * 32 + 2))) == 5);
  CHECK(launches(Form::kSoftmax, at::kFloat, 32, heads * 96 * (10 * (8 * 32 + 3) + 12 * (7 * 32 + 2))) == 8);
  CHECK(launches(Form::kElu, at::kFloat, 64, heads * 10 * (64 * (6 * 64 + 5) + 4 * 64 * 128), true) == 5);
  CHECK(launches(Form::kSoftmax, at::kFloat, 32, heads * 10 * (96 * (18 * 32 + 5) + 4 * 64 * 128), true) == 8);
  CHECK(launches(Form::kElu, at::kFloat, kFeatureHeadWidest + 8, 0) == 0);
  CHECK(launches(Form::kElu, at::kDouble, 64, 0) == 0);
}

TEST_CASE("plans of feature attention fit a device at any size") {
  STATIC_REQUIRE(all_fit({1, 96, 256, 1 << 12, 1 << 20}, features_fit));
  // Two blocks at a time, at their widest.
  STATIC_REQUIRE(resident_blocks(kSm80, kTileThreads, 1, feature_bytes(kFeatureHeadWidest, 4)) == 2);
  const auto fits = [](int64_t queries, int64_t keys, int64_t f) {
    const auto rows = [](int64_t count) { return at::empty({1, 1, count, 1}, at::kMeta); };
    FeatureAttentionOptions options;
    options.omega = at::empty({f, 1}, at::kMeta);
    return fits_feature_programs(rows(queries), rows(keys), rows(keys), options);
  };
  CHECK(fits(kMostNumbered, kMostNumbered, kMostNumbered));
  for (const int64_t many : {kMostNumbered + 1, int64_t{1} << 32})
    CHECK_FALSE((fits(many, 1, 1) || fits(1, many, 1) || fits(1, 1, many)));
}

}  // namespace xformer::kernels::feature_attention_device_test
