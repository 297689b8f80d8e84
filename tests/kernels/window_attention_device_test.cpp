// Attention over windows as a device computes it, walked on the CPU, against the definition in double precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/window_attention/device.h"
#include "place_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::window_attention_device_test {

namespace {

struct WalkedWindows {
  Windows windows;
  int64_t g = 0;  // extra keys
  int64_t m = 0;  // of these, for every block its own g; 0: all rows have all
  int64_t d = 8, e = 8, b = 2, h = 1;
  int64_t valid = -1;    // tokens of sample 0, with a hole; -1: all, the others always have all
  int64_t allowed = -1;  // likewise of extra keys
  double p = 0.2;
  bool each_head = false;  // heads have places and flags of their own
  bool tf32 = false, gaps = false, sums = true;
  bool biased = false;  // keys and extra keys gain something of their own, some -infinity
  at::ScalarType type = at::kFloat;
  int64_t behind = 0;  // elements of something else behind each row
};

at::Tensor heads_of(const std::string& name, const WalkedWindows& one, int64_t rows, int64_t width) {
  // As a projection leaves them; with gaps between rows and the last axis not the fastest.
  if (one.gaps) return random_tensor(name, {one.b, one.h, width, rows}, at::kFloat).to(one.type).transpose(2, 3);
  const at::Tensor wider = random_tensor(name, {one.b, rows, one.h, width + one.behind}, at::kFloat).to(one.type);
  return wider.narrow(3, 0, width).transpose(1, 2);
}

at::Tensor flags_of(const WalkedWindows& one, int64_t rows, int64_t valid) {
  if (valid < 0) return {};
  at::Tensor flags = at::ones({one.b, rows}, at::kBool);
  flags[0].narrow(0, valid, rows - valid).zero_();
  if (valid > 3) flags[0][1] = false;
  return flags;
}

// Some keys stand twice among a block's, some nowhere, some places are none.
at::Tensor places_of(const WalkedWindows& one) {
  const int64_t blocks = one.windows.blocks;
  at::Tensor places = at::empty({one.each_head ? one.h : 1, blocks, one.g}, at::kLong);
  for (int64_t i = 0; i < places.numel(); ++i)
    places.data_ptr<int64_t>()[i] = (i * i + 3 * i + i / one.g) % (one.m + 1) - 1;
  return places;
}

// Every fifth is -infinity, and all of the last sample's where there is one for each.
at::Tensor gains_of(const WalkedWindows& one, const char* name, int64_t samples, int64_t heads, int64_t keys) {
  at::Tensor gains = random_tensor(name, {samples, heads, keys}, at::kFloat);
  gains.view({-1}).slice(0, 2, {}, 5).fill_(-INFINITY);
  if (samples > 1 && one.b > 1) gains[-1].fill_(-INFINITY);
  return gains;
}

struct Given {
  at::Tensor q, k, v, gradient, sum_gradient;
  ExtraKeys extra;
  WindowAttentionOptions options;
};

Given given_of(const WalkedWindows& one) {
  const int64_t n = one.windows.length, more = one.m > 0 ? one.m : one.g;
  Given given{heads_of("q", one, n, one.d),
              heads_of("k", one, n, one.d),
              heads_of("v", one, n, one.e),
              heads_of("gradient", one, n, one.e),
              one.sums ? random_tensor("sums", {one.b, one.h, n, 1}, at::kFloat) : at::Tensor(),
              {},
              {one.windows, flags_of(one, n, one.valid), place_of(one.p)}};
  if (one.biased) given.options.bias = gains_of(one, "gains", one.b, 1, n);
  if (more == 0) return given;
  given.extra = {heads_of("more k", one, more, one.d), heads_of("more v", one, more, one.e), {}};
  given.extra.allowed = flags_of(one, more, one.allowed);
  if (one.allowed >= 0) {
    given.extra.allowed = given.extra.allowed.unsqueeze(1).repeat({1, one.each_head ? one.h : 1, 1});
    given.extra.allowed.select(1, 0).select(1, more - 1).zero_();
  }
  if (one.m > 0) given.extra.places = places_of(one);
  if (one.biased) given.extra.bias = gains_of(one, "more gains", 1, one.h, more);
  return given;
}

// Rows without a key have one very low log-sum, whose size would hide all others.
at::Tensor told(const at::Tensor& log_sum) {
  return at::where(log_sum.lt(-1e29), at::full_like(log_sum, 100), log_sum).to(at::kDouble);
}

// Output, log-sums and gradients of q, k, v and the extra keys and values.
Tensors walked(const WalkedWindows& one, const Given& given, WalkOrder order) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const auto launch = [order](bool backward) {
    return [=](const WindowArguments& a) {
      run_window_attention<WalkedTypes>(
          a, backward, [&](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); });
    };
  };
  const WindowAttentionForward forward =
      window_attention_forward_device(given.q, given.k, given.v, given.extra, {}, given.options, launch(false));
  const WindowAttentionGradients found =
      window_attention_backward_device(given.gradient, given.sum_gradient, given.q, given.k, given.v, given.extra, {},
                                       forward, given.options, launch(true));
  at::globalContext().setAllowTF32CuBLAS(false);
  Tensors result{forward.out, told(forward.log_sum), found.q, found.k, found.v};
  if (found.extra_k.defined()) result.insert(result.end(), {found.extra_k, found.extra_v});
  return result;
}

Tensors defined(const Given& given) {
  Tensors leaves;
  for (const at::Tensor& x : {given.q, given.k, given.v, given.extra.k, given.extra.v})
    if (x.defined()) leaves.push_back(x.to(at::kDouble).detach().requires_grad_(true));
  ExtraKeys extra = given.extra;
  if (extra.k.defined()) extra.k = leaves[3], extra.v = leaves[4];
  at::Tensor log_sum;
  const at::Tensor out = window_attention_reference(leaves[0], leaves[1], leaves[2], extra, given.options, &log_sum);
  at::Tensor total = (out * given.gradient).sum();
  if (given.sum_gradient.defined()) total = total + (log_sum * given.sum_gradient).sum();
  Tensors result = torch::autograd::grad({total}, leaves);
  result.insert(result.begin(), {out.detach(), told(log_sum.detach())});
  return result;
}

double worst_of(const WalkedWindows& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  const Given given = given_of(one);
  return worst_walked([&](WalkOrder order) { return walked(one, given, order); }, defined(given), both_orders, first);
}

constexpr double kLikeFloat = 1e-5, kLikeTf32 = 5e-3;

// Of so many tokens: sliding with extra keys, or by blocks with their own.
WalkedWindows of_length(int64_t n, bool by_blocks) {
  const int64_t b = near_border(n) ? 2 : 1, valid = n > 2 ? n - n / 3 : -1;
  if (by_blocks) return {.windows = Windows::neighbour_blocks(n, 24, false), .g = 5, .m = 11, .b = b, .valid = valid};
  return {.windows = Windows::sliding(n, 9, 5), .g = 3, .b = b, .valid = valid};
}

std::vector<Windows> shapes() {
  return {Windows::sliding(150, 9, 3),
          Windows::sliding(200, 70, 0),
          Windows::sliding(131, 17, 17, 2),
          Windows::sliding(5, 2, 2, 9),
          Windows::sliding(90, 1000, 1000),
          Windows::own_block(100, 6, true),
          Windows::own_block(140, 70, false),
          Windows::own_block(100, 20, false, 3),
          Windows::own_block(70, 1, false),
          Windows::segments(150, 40, 10),
          Windows::neighbour_blocks(200, 64, false),
          Windows::neighbour_blocks(150, 24, true)};
}

// Cases of every kind: widths, extra keys of all rows and of blocks, padding, dilation, biases, gaps.
std::vector<WalkedWindows> half_cases() {
  const Windows windows = Windows::sliding(140, 20, 20);
  // Sixteen bytes are four floats and eight of these.
  return {{.windows = Windows::sliding(3, 1, 1)},
          {.windows = windows, .g = 3, .d = 32, .e = 32, .valid = 100, .behind = 8},
          {.windows = windows, .g = 3, .d = 24, .e = 16, .h = 2, .behind = 4},
          {.windows = windows, .g = 3, .d = 64, .e = 40, .valid = 100},
          {.windows = windows, .g = 3, .d = 5, .e = 7},
          {.windows = windows, .g = 3, .h = 2, .valid = 100, .gaps = true},
          {.windows = Windows::sliding(131, 17, 17, 2), .h = 2, .valid = 70, .biased = true},
          {.windows = Windows::own_block(100, 20, false), .g = 7, .m = 9, .b = 3, .valid = 70, .biased = true},
          {.windows = Windows::neighbour_blocks(150, 24, true), .g = 70, .m = 130, .h = 2, .allowed = 100, .p = 0},
          {.windows = Windows::segments(70, 20, 5), .g = 4, .valid = 0, .sums = false}};
}

int counted_launches = 0;

auto counts_launches(bool backward) {
  return [backward](const WindowArguments& a) {
    run_window_attention<WalkedTypes>(a, backward, [](const LaunchGrid&, const auto&) { ++counted_launches; });
  };
}

WindowAttentionForward counted_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const ExtraKeys& extra, const RelativeKeys& relative,
                                       const WindowAttentionOptions& options) {
  return window_attention_forward_device(q, k, v, extra, relative, options, counts_launches(false));
}

WindowAttentionGradients counted_backward(const at::Tensor& out_gradient, const at::Tensor& log_sum_gradient,
                                          const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                          const ExtraKeys& extra, const RelativeKeys& relative,
                                          const WindowAttentionForward& forward,
                                          const WindowAttentionOptions& options) {
  return window_attention_backward_device(out_gradient, log_sum_gradient, q, k, v, extra, relative, forward, options,
                                          counts_launches(true));
}

}  // namespace

TEST_CASE("windows on a device: every length from 1 to 130, sliding with extra keys and by blocks with their own") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    // Away from tiles' borders they take turns, and so do the orders.
    for (const bool by_blocks : {false, true})
      if (near_border(n) || by_blocks == (n % 2 == 1))
        CHECK(worst_of(of_length(n, by_blocks), near_border(n), order_at(n)) < kLikeFloat);
  }
}

TEST_CASE("windows on a device: any shape, with and without extra keys, padded, in two orders") {
  const PoisonedMemory poisoned;
  for (const Windows& windows : shapes()) {
    CAPTURE(windows.length, windows.dilation, windows.block, windows.blocks);
    const int64_t valid = windows.length * 2 / 3;
    const bool is_short = windows.length <= 140;
    CHECK(worst_of({.windows = windows}) < kLikeFloat);
    CHECK(worst_of({.windows = windows, .g = 1, .valid = valid, .sums = false}, true) < kLikeFloat);
    if (is_short)
      CHECK(worst_of({.windows = windows, .g = 70, .h = 2, .valid = valid, .allowed = 65, .each_head = true}) <
            kLikeFloat);
    if (windows.dilation > 1) continue;
    CHECK(worst_of({.windows = windows, .g = 5, .m = 7, .valid = valid, .allowed = 6}, is_short) < kLikeFloat);
    if (windows.blocks > 20) continue;
    CHECK(worst_of({.windows = windows, .g = 70, .m = 130, .h = 2, .allowed = 100, .each_head = true}) < kLikeFloat);
  }
}

TEST_CASE("windows on a device: keys with a bias of their own, or seen by no row") {
  const PoisonedMemory poisoned;
  for (const Windows& windows : {Windows::sliding(131, 17, 17, 2), Windows::own_block(100, 20, false)}) {
    const int64_t m = windows.dilation > 1 ? 0 : 9;
    CHECK(worst_of({.windows = windows, .biased = true}, true) < kLikeFloat);
    CHECK(worst_of({.windows = windows, .g = 7, .m = m, .b = 3, .h = 2, .valid = 70, .biased = true}) < kLikeFloat);
  }
}

TEST_CASE("windows on a device: widths, strides and products") {
  const PoisonedMemory poisoned;
  const Windows windows = Windows::sliding(140, 20, 20);
  CHECK(worst_of({.windows = windows, .g = 3, .d = 32, .e = 32}, true) < kLikeFloat);
  CHECK(worst_of({.windows = windows, .g = 3, .d = 5, .e = 7}) < kLikeFloat);
  CHECK(worst_of({.windows = windows, .g = 3, .d = 64, .e = 48}, true) < kLikeFloat);
  CHECK(worst_of({.windows = windows, .g = 3, .d = 20, .e = 64}) < kLikeFloat);
  CHECK(worst_of({.windows = windows, .g = 3, .h = 3, .p = 0}) < kLikeFloat);
  CHECK(worst_of({.windows = windows, .g = 3, .h = 2, .valid = 100, .gaps = true}, true) < kLikeFloat);
  CHECK(worst_of({.windows = windows, .d = 32, .e = 32, .tf32 = true}, true) < kLikeTf32);
  // TF32 is not float: the bound of one would catch the other.
  CHECK(worst_of({.windows = windows, .d = 32, .e = 32, .tf32 = true}) > 10 * kLikeFloat);
}

TEST_CASE("windows on a device: heads in bf16 and fp16 lose nothing but by their own roundings") {
  const PoisonedMemory poisoned;
  for (const auto& [type, rounding] : {std::pair{at::kBFloat16, 1.0 / 256}, {at::kHalf, 1.0 / 1024}}) {
    std::vector<WalkedWindows> cases = half_cases();
    for (int64_t n = 1; n <= 130; ++n)  // near tiles' borders types take turns, and so do both kinds
      if (near_border(n) && (n % 2 == 0) == (type == at::kHalf)) cases.push_back(of_length(n, n / 2 % 2 == 0));
    for (WalkedWindows& one : cases) {
      one.type = type;
      CAPTURE(type, one.windows.length, one.g, one.m, one.d);
      const Given given = given_of(one);
      const Tensors got = walked(one, given, WalkOrder::kForward), meant = defined(given);
      const Tensors backwards = walked(one, given, WalkOrder::kBackward);
      REQUIRE(got.size() == meant.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(at::equal(got[i], backwards[i]));
        // Products of such heads are exact, and log-sums stay floats. The output has the rounding of its weights to
        // ten bits and its own, of half a step each; gradients also what that does to delta.
        const double bound = i == 1 ? kLikeFloat : i == 0 ? rounding : 3 * rounding;
        const double found = difference(got[i].to(at::kDouble), meant[i]);
        CHECK(found < bound);
        if (i == 1) continue;
        CHECK(got[i].scalar_type() == type);
        // What is stored is in 16 bits: the bound of floats would catch it.
        CHECK(found > kLikeFloat);
      }
    }
    // Fewer keys are no rounding: these bounds would catch them, in the log-sums and all the rest.
    WalkedWindows one{.windows = Windows::sliding(140, 20, 20), .g = 3, .d = 32, .e = 32, .type = type};
    Given given = given_of(one);
    const Tensors got = walked(one, given, WalkOrder::kForward);
    given.options.windows.back = 10;
    const Tensors others = defined(given);
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), others[i]) > 3 * rounding);
  }
}

TEST_CASE("windows on a device: extra keys' gradients over several parts of several tiles, and long lists of places") {
  const PoisonedMemory poisoned;
  const WalkedWindows shared{.windows = Windows::sliding(270, 4, 4), .g = 3, .b = 33, .h = 2, .valid = 201};
  const RowDivision division = row_division(270, 66);
  CHECK((division.parts == 3 && division.part_tiles == 2));
  CHECK(worst_of(shared) < kLikeFloat);
  // 2,048 places are looked at in turn.
  CHECK(worst_of({.windows = Windows::own_block(90, 2, false), .g = 50, .m = 70}, true) < kLikeFloat);
}

TEST_CASE("windows on a device: a sample without a token gives zero, and zero gradients") {
  const PoisonedMemory poisoned;
  for (const int64_t m : {0, 9}) {
    const WalkedWindows one{.windows = Windows::segments(70, 20, 5), .g = 4, .m = m, .valid = 0};
    CHECK(worst_of(one) < kLikeFloat);
    const Tensors found = walked(one, given_of(one), WalkOrder::kForward);
    for (const size_t i : {0, 2, 3, 4, 5, 6}) CHECK(found[i][0].abs().max().item<float>() == 0);
  }
}

TEST_CASE("windows on a device: what stands in padding and in extra keys that do not count does not matter") {
  const PoisonedMemory poisoned;
  for (const int64_t m : {0, 30}) {
    const WalkedWindows one{.windows = Windows::sliding(90, 6, 6), .g = 20, .m = m, .valid = 50, .allowed = 15};
    const Given given = given_of(one);
    const Tensors clean = walked(one, given, WalkOrder::kForward);
    for (const at::Tensor& x : {given.q, given.k, given.v, given.gradient, given.sum_gradient}) {
      x[0].narrow(1, 50, 40).fill_(NAN);
      x[0].select(1, 1).fill_(INFINITY);
    }
    for (const at::Tensor& x : {given.extra.k, given.extra.v}) x[0].narrow(1, 15, 5).fill_(NAN);
    const Tensors lost = walked(one, given, WalkOrder::kForward);
    for (size_t i = 0; i < lost.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
  }
}

TEST_CASE("windows on a device: tiles have every row once, and all rows that see a key are among its rows") {
  for (const Windows& w : shapes())
    for (const bool by_block : {false, true}) {
      if (by_block && w.dilation > 1) continue;
      const WindowPattern pattern = window_pattern(w, by_block);
      CAPTURE(w.length, w.dilation, w.block, w.blocks, by_block);
      std::vector<int> seen(static_cast<size_t>(w.length));
      for (int tile = 0; tile < pattern.row_tiles(); ++tile) {
        const WindowRows rows = pattern.row_tile(tile);
        CHECK(rows.to - rows.from <= kTileSide);
        for (int i = rows.from; i < rows.to; ++i) {
          ++seen[static_cast<size_t>(rows.residue + i * w.dilation)];
          if (by_block) CHECK(rows.block == i / pattern.block);
        }
      }
      CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
      for (const int end : {pattern.tokens(0, pattern.n), pattern.tokens(0, pattern.n) / 2})
        for (int first = 0; first < end; first += kTileSide) {
          const Span rows = pattern.seeing(first, end);
          for (int i = 0; i < end; ++i) {
            const Span keys = pattern.keys(i, end);
            if (keys.from < first + kTileSide && keys.to > first) CHECK((i >= rows.from && i < rows.to));
          }
        }
    }
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of windows runs them: one launch forwards, two or three backwards") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("window_attention_forward", dispatched<counted_forward>);
  library.impl("window_attention_backward", dispatched<counted_backward>);
  const Windows windows = Windows::own_block(40, 10, false);
  const auto launches = [&](at::ScalarType type, int64_t d, int64_t g, bool sums) {
    const auto leaf = [&](int64_t rows) {
      return at::empty({2, 3, rows, d}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    Tensors inputs{leaf(40), leaf(40), leaf(40)};
    ExtraKeys extra;
    if (g > 0) inputs.insert(inputs.end(), {leaf(g), leaf(g)}), extra = {inputs[3], inputs[4], {}};
    at::Tensor log_sum;
    const at::Tensor out =
        window_attention(inputs[0], inputs[1], inputs[2], extra, {windows, {}, {}}, sums ? &log_sum : nullptr);
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i)
      CHECK((found[i].sizes() == inputs[i].sizes() && found[i].scalar_type() == type));
    if (sums) CHECK(log_sum.sizes() == at::IntArrayRef({2, 3, 40, 1}));
    if (sums) CHECK(log_sum.scalar_type() == at::kFloat);
    return std::exchange(counted_launches, 0);
  };
  CHECK(launches(at::kFloat, 64, 0, true) == 3);
  CHECK(launches(at::kFloat, 64, 5, true) == 4);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    CHECK(launches(type, kWindowHeadWidest, 5, true) == 4);
    CHECK(launches(type, kWindowHeadWidest + 8, 5, false) == 0);
  }
  CHECK(launches(at::kFloat, kWindowHeadWidest + 8, 5, false) == 0);
  CHECK(launches(at::kDouble, 64, 5, false) == 0);
  const at::Tensor x = at::empty({1, 1, 2, 8}), one = at::empty({1, 8});
  CHECK(fits_window_programs({x, x}, {}));
  CHECK_FALSE(fits_window_programs({x, x}, {one, one}));
  CHECK(fits_window_programs({x.to(at::kHalf), at::Tensor(), x.to(at::kHalf)}, {}));
  CHECK_FALSE(fits_window_programs({x, x.to(at::kHalf)}, {}));
  CHECK_FALSE(fits_window_programs({x.to(at::kDouble)}, {}));
  const auto long_fits = [](int64_t n) {
    const at::Tensor rows = at::empty({1, 1, n, 1}, at::kMeta);
    return fits_window_programs({rows}, {});
  };
  CHECK(long_fits(kWindowMost));
  CHECK_FALSE(long_fits(kWindowMost + 1));
}

}  // namespace xformer::kernels::window_attention_device_test
