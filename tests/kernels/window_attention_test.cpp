// Attention over windows and blocks against its definition with all weights: outputs, log-sums and gradients, over
// shapes, masks, extra keys and dropout.
#include "kernels/window_attention/window_attention.h"

#include <ATen/Parallel.h>

#include "core/error.h"
#include "core/random.h"
#include "fused_support.h"
#include "kernels/policy.h"
#include "tensor/memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

enum class Extra { kNone, kShared, kPerBlock };

struct WindowCase {
  Windows windows;
  Extra extra = Extra::kNone;
  int64_t g = 0;
  double dropout = 0;
  bool masked = false, holes = false, extra_masked = false, extra_per_head = true, relative = false, biased = false;
  int64_t b = 2, h = 2, d = 4, e = 4;
};

// Row 0 keeps everything, the last one nothing.
at::Tensor random_valid(Stream& numbers, int64_t rows, int64_t length, bool holes) {
  at::Tensor mask = at::zeros({rows, length}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t end = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(length + 1)));
    if (row == 0) end = length;
    if (row > 0 && row == rows - 1) end = 0;
    for (int64_t i = 0; i < end; ++i) mask[row][i] = row == 0 || !holes || numbers.next_below(3) > 0;
  }
  return mask;
}

struct Built {
  WindowAttentionOptions options;
  at::Tensor allowed, places, extra_bias;
  Tensors inputs;  // q, k, v, extra keys, extra values; vectors and bias of distances
  bool relative = false;
};

// Each head has its own reach, with a hole in it, the last one sees itself alone; but for windows of one offset.
at::Tensor random_bias(const Windows& windows, int64_t heads, at::ScalarType type) {
  const at::Tensor bias = random_tensor("bias", {heads, windows.back + 1 + windows.ahead}, type);
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t offset = -windows.back; offset <= windows.ahead; ++offset)
      if (head == heads - 1 ? offset != 0
                            : -offset > windows.back / 2 + 1 || offset > windows.ahead / 3 || offset == -2)
        bias[head][offset + windows.back] = -INFINITY;
  return bias;
}

// What keys gain, -infinity for a third of them and for the last sample's.
at::Tensor random_gains(Stream& numbers, const char* name, at::IntArrayRef shape, at::ScalarType type) {
  const at::Tensor gains = random_tensor(name, shape, type);
  auto flat = gains.view({-1});
  for (int64_t i = 0; i < flat.size(0); ++i)
    if (numbers.next_below(3) == 0) flat[i] = -INFINITY;
  if (gains.size(0) > 1) gains[-1].fill_(-INFINITY);
  return gains;
}

Built build(const WindowCase& one, at::ScalarType type) {
  const Windows& w = one.windows;
  Stream numbers(static_cast<uint64_t>(w.length * 100 + one.g));
  Built result{{w, {}, {}, {}}, {}, {}, {}, {}};
  if (one.masked) result.options.valid = random_valid(numbers, one.b, w.length, one.holes);
  if (one.dropout > 0) {
    DropoutStream stream(5);
    stream.set_step(3, 2);
    result.options.dropout = {one.dropout, stream.state, 4};
  }
  const auto tensor = [&](const char* name, at::IntArrayRef shape) { return random_tensor(name, shape, type); };
  result.inputs = {tensor("q", {one.b, one.h, w.length, one.d}), tensor("k", {one.b, one.h, w.length, one.d}),
                   tensor("v", {one.b, one.h, w.length, one.e})};
  result.relative = one.relative;
  if (one.biased) {
    const int64_t samples = one.masked ? one.b : 1;
    result.options.bias = random_gains(numbers, "gains", {samples, one.extra_per_head ? one.h : 1, w.length}, type);
  }
  const auto with_distances = [&] {
    if (!one.relative) return;
    result.inputs.push_back(tensor("vectors", {w.back + 1 + w.ahead, one.d}));
    result.inputs.push_back(random_bias(w, one.h, type));
  };
  if (one.extra == Extra::kNone) {
    with_distances();
    return result;
  }
  const int64_t there = one.extra == Extra::kShared ? one.g : 50;
  result.inputs.push_back(tensor("more k", {one.b, one.h, there, one.d}));
  result.inputs.push_back(tensor("more v", {one.b, one.h, there, one.e}));
  with_distances();
  if (one.biased) result.extra_bias = random_gains(numbers, "more gains", {one.b, 1, there}, type);
  if (one.extra_masked) {
    result.allowed = random_valid(numbers, one.b * (one.extra_per_head ? one.h : 1), there, true);
    result.allowed = result.allowed.view({one.b, -1, there});
  }
  if (one.extra == Extra::kPerBlock) {
    result.places = at::empty({one.extra_per_head ? one.h : 1, w.blocks, one.g}, at::kLong);
    int64_t* const places = result.places.data_ptr<int64_t>();
    // Side by side in the first block.
    for (int64_t i = 0; i < result.places.numel(); ++i)
      places[i] = i < one.g && one.g < there
                      ? i + 1
                      : static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(there + 1))) - 1;
  }
  return result;
}

Tensors run(const Tensors& x, const Built& built, bool fused) {
  const size_t rest = built.relative ? x.size() - 2 : x.size();
  const ExtraKeys extra = rest > 3 ? ExtraKeys{x[3], x[4], built.allowed, built.places, built.extra_bias} : ExtraKeys{};
  const RelativeKeys relative = built.relative ? RelativeKeys{x[rest], x[rest + 1]} : RelativeKeys{};
  at::Tensor log_sum;
  const auto& function = fused ? window_attention : window_attention_reference;
  const at::Tensor out = function(x[0], x[1], x[2], extra, built.options, &log_sum, relative);
  // Rows without a key: the same very low number, whose size would hide all others.
  const double lowest = lowest_log_sum(out.scalar_type());
  const at::Tensor none = log_sum.detach().eq(lowest);
  return {out, log_sum.masked_fill(none, 0), none.to(out.scalar_type()) + 0 * out};
}

double difference_of(const WindowCase& one, at::ScalarType type) {
  const Built built = build(one, type);
  return worst_difference([&](const Tensors& x) { return run(x, built, true); },
                          [&](const Tensors& x) { return run(x, built, false); }, built.inputs);
}

std::vector<Windows> shapes() {
  return {Windows::sliding(1, 4, 4),
          Windows::sliding(7, 3, 3),
          Windows::sliding(40, 0, 0),
          Windows::sliding(100, 5, 5),
          Windows::sliding(131, 20, 0),
          Windows::sliding(16, 0, 20),
          Windows::sliding(150, 9, 3),
          Windows::sliding(101, 17, 17, 3),
          Windows::sliding(5, 2, 2, 9),
          Windows::sliding(130, 4, 2, 2),
          Windows::sliding(90, 1000, 1000),
          Windows::own_block(61, 6, false),
          Windows::own_block(61, 6, true),
          Windows::own_block(61, 1, true),
          Windows::own_block(77, 100, true),
          Windows::own_block(70, 6, false, 3),
          Windows::own_block(75, 16, false),
          Windows::own_block(150, 16, false, 3),
          Windows::neighbour_blocks(67, 8, false),
          Windows::neighbour_blocks(67, 8, true)};
}

}  // namespace

TEST_CASE("fused windows equal their definition, with log-sums and gradients, for any shape and mask") {
  for (const Windows& windows : shapes())
    for (const bool masked : {false, true})
      for (const bool holes : {false, true}) {
        if (holes && !masked) continue;
        WindowCase one{windows};
        one.masked = masked, one.holes = holes;
        CAPTURE(windows.length, windows.dilation, windows.block, windows.blocks, masked, holes);
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        one.b = 3, one.h = 1, one.d = 8, one.e = 5, one.dropout = 0.3;
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        CHECK(difference_of(one, at::kFloat) < 3e-5);
      }
}

TEST_CASE("fused windows whose keys have a bias of their own, or are seen by no row") {
  for (const Windows& windows : shapes())
    for (const Extra extra : {Extra::kNone, Extra::kShared, Extra::kPerBlock})
      for (const bool masked : {false, true}) {
        if (extra == Extra::kPerBlock && windows.dilation > 1) continue;
        WindowCase one{windows, extra, extra == Extra::kNone ? 0 : 9};
        one.biased = true, one.masked = one.extra_masked = masked, one.extra_per_head = !masked;
        CAPTURE(windows.length, windows.dilation, windows.block, windows.blocks, masked, extra == Extra::kShared);
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        one.dropout = 0.2, one.b = 3, one.e = 7;
        CHECK(difference_of(one, at::kFloat) < 3e-5);
      }
}

TEST_CASE("fused windows with extra keys, shared or of each block, masked or not") {
  for (const Windows& windows : shapes())
    for (const Extra extra : {Extra::kShared, Extra::kPerBlock})
      for (const int64_t g : {1, 70}) {
        if (extra == Extra::kPerBlock && windows.dilation > 1) continue;
        WindowCase one{windows, extra, g};
        CAPTURE(windows.length, windows.dilation, windows.block, windows.blocks, g, extra == Extra::kShared);
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        one.dropout = 0.2, one.extra_masked = true, one.b = 3, one.e = 7, one.extra_per_head = false;
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        one.masked = one.holes = true;
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        CHECK(difference_of(one, at::kFloat) < 3e-5);
      }
}

TEST_CASE(
    "fused windows with distances: vectors and numbers of their own, heads of their own reach, any shape and mask") {
  for (const Windows& windows : shapes())
    for (const Extra extra : {Extra::kNone, Extra::kShared, Extra::kPerBlock})
      for (const bool masked : {false, true}) {
        if (extra == Extra::kPerBlock && windows.dilation > 1) continue;
        WindowCase one{windows, extra, 3};
        one.relative = true, one.masked = masked, one.holes = masked, one.extra_masked = masked;
        CAPTURE(windows.length, windows.dilation, windows.block, windows.blocks, static_cast<int>(extra), masked);
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        one.b = 3, one.h = 3, one.d = 8, one.e = 5, one.dropout = 0.3;
        CHECK(difference_of(one, at::kDouble) < 1e-11);
        CHECK(difference_of(one, at::kFloat) < 3e-5);
      }
}

TEST_CASE("fused windows with distances cut long blocks into tiles that read what their head reaches") {
  for (const Windows& windows : {Windows::sliding(700, 1000, 1000), Windows::sliding(900, 200, 0)}) {
    WindowCase one{windows};
    one.relative = true, one.dropout = 0.1, one.b = 1, one.masked = windows.ahead > 0;
    CHECK(difference_of(one, at::kDouble) < 1e-11);
  }
}

TEST_CASE("fused windows with distances read and multiply what is within a head's reach") {
  for (const Windows& windows : shapes()) {
    const at::Tensor x = random_tensor("x", {1, 2, windows.length, 8}, at::kFloat);
    const int64_t back = std::min<int64_t>(windows.back, 4), ahead = std::min<int64_t>(windows.ahead, 3);
    at::Tensor bias = at::full({2, windows.back + 1 + windows.ahead}, -INFINITY);
    bias[0].narrow(0, windows.back - back, back + 1 + ahead).fill_(0);
    bias[1][windows.back] = 0;
    const RelativeKeys relative{random_tensor("vectors", {bias.size(1), 8}, at::kFloat), bias};
    const OpCounter counter;
    static_cast<void>(window_attention(x, x, x, {}, {windows, {}, {}}, nullptr, relative));
    const double near = relative_products(windows, back, ahead), own = relative_products(windows, 0, 0);
    CHECK(static_cast<double>(counter.counts().flops) == 2 * 8 * (near + own));
    CHECK(near <= relative_products(windows, windows.back, windows.ahead));
  }
  // 32 rows by 40 columns, and 9 offsets for each row: the size of the sequence is nothing to it.
  CHECK(relative_products(Windows::sliding(3200, 3000, 3000), 4, 4) < 3200 * (2 * 40 + 9));
}

TEST_CASE("fused windows cut long blocks into tiles") {
  WindowCase one{Windows::own_block(700, 1000, true)};
  one.dropout = 0.1, one.b = one.h = 1;
  CHECK(difference_of(one, at::kDouble) < 1e-11);
  one.windows = Windows::sliding(1500, 300, 300);
  REQUIRE(one.windows.blocks > 1);
  one.extra = Extra::kPerBlock, one.g = 20, one.masked = true, one.extra_masked = true;
  CHECK(difference_of(one, at::kDouble) < 1e-11);
}

TEST_CASE("fused windows give the same bits with any number of threads") {
  WindowCase one{Windows::sliding(200, 11, 11), Extra::kShared, 3, 0.1, true, true};
  one.relative = true;
  const Built built = build(one, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors alone = run_with_gradients([&](const Tensors& x) { return run(x, built, true); }, built.inputs);
  at::set_num_threads(5);
  const Tensors shared = run_with_gradients([&](const Tensors& x) { return run(x, built, true); }, built.inputs);
  at::set_num_threads(before);
  for (size_t i = 0; i < alone.size(); ++i) CHECK(at::equal(alone[i], shared[i]));
}

TEST_CASE("fused windows drop what kernels::dropout drops of the weights, sample by sample") {
  WindowCase one{Windows::sliding(50, 4, 4), Extra::kShared, 2, 0.5};
  const Built built = build(one, at::kDouble);
  const Tensors& x = built.inputs;
  const at::Tensor whole = window_attention(x[0], x[1], x[2], {x[3], x[4], {}}, built.options);
  DropoutStream stream(5);
  stream.set_step(3, 3);  // the second sample of a batch that began at row 2
  WindowAttentionOptions later = built.options;
  later.dropout.state = stream.state;
  const auto last = [](const at::Tensor& t) { return t.narrow(0, 1, 1); };
  CHECK(at::equal(window_attention(last(x[0]), last(x[1]), last(x[2]), {last(x[3]), last(x[4]), {}}, later),
                  last(whole)));
  later.dropout = {};
  CHECK(difference(window_attention(x[0], x[1], x[2], {x[3], x[4], {}}, later), whole) > 1e-3);
}

TEST_CASE("fused windows take views as they lie, and lay their result out for an output projection") {
  const at::Tensor packed = random_tensor("packed", {2, 40, 3, 3, 8});  // [b, n, h, 3, d]
  const auto part = [&](int64_t which) { return packed.select(3, which).transpose(1, 2); };
  const WindowAttentionOptions options{Windows::sliding(40, 3, 3, 2), {}, {}};
  const at::Tensor both = random_tensor("both", {2, 3, 5, 16});  // keys and values side by side
  const ExtraKeys extra{both.narrow(-1, 0, 8), both.narrow(-1, 8, 8), {}};
  const at::Tensor got = window_attention(part(0), part(1), part(2), extra, options);
  CHECK(difference(got, window_attention_reference(part(0), part(1), part(2), extra, options)) < 1e-13);
  CHECK(got.transpose(1, 2).is_contiguous());
  const at::Tensor odd = random_tensor("odd", {2, 3, 8, 40}).transpose(2, 3);
  const at::Tensor same = random_tensor("same", {1, 1, 1, 8}).expand({2, 3, 5, 8});  // rows upon each other
  CHECK(difference(window_attention(odd, odd, odd, {same, same, {}}, options),
                   window_attention_reference(odd, odd, odd, {same, same, {}}, options)) < 1e-13);
}

TEST_CASE("fused windows: nothing comes out of NaN but NaN, and nothing of padding") {
  const WindowAttentionOptions plain{Windows::sliding(100, 5, 5), {}, {}};
  at::Tensor q = random_tensor("q", {1, 1, 100, 4}), k = random_tensor("k", {1, 1, 100, 4}), v = k.clone();
  q[0][0][20][1] = NAN;
  const at::Tensor rows = window_attention(q, k, v, {}, plain).isnan().any(-1).view({100});
  CHECK(rows.sum().item<int64_t>() == 1);
  CHECK(rows[20].item<bool>());
  // Behind the last valid token anything may stand.
  q[0][0][20][1] = 0;
  for (const at::Tensor& x : {q, k, v}) x.narrow(2, 60, 40).fill_(NAN);
  WindowAttentionOptions masked = plain;
  masked.valid = at::arange(100).lt(60).unsqueeze(0);
  const at::Tensor out = window_attention(q, k, v, {}, masked);
  const auto head = [](const at::Tensor& x) { return x.narrow(2, 0, 60); };
  CHECK(difference(head(out), window_attention(head(q), head(k), head(v), {}, {Windows::sliding(60, 5, 5), {}, {}})) <
        1e-13);
  CHECK(out.narrow(2, 60, 40).eq(0).all().item<bool>());
}

TEST_CASE("fused windows count what their tiles multiplied, and skip padding") {
  for (const Windows& windows : shapes()) {
    CAPTURE(windows.length, windows.dilation, windows.block);
    const at::Tensor x = random_tensor("x", {1, 2, windows.length, 8}, at::kFloat),
                     more = random_tensor("more", {1, 2, 3, 8}, at::kFloat);
    const auto flops = [&](const at::Tensor& valid) {
      const OpCounter counter;
      static_cast<void>(window_attention(x, x, x, {more, more, {}}, {windows, valid, {}}));
      return static_cast<double>(counter.counts().flops);
    };
    const double all = flops({}), rows = static_cast<double>(windows.length);
    CHECK(all == 2 * 4 * 8 * (windows.executed_pairs() + rows * 3));
    CHECK(windows.executed_pairs() >= windows.pattern_pairs());
    CHECK(windows.executed_pairs() <= windows.explicit_pairs());
    CHECK(flops(at::ones({1, windows.length}, at::kBool)) == all);
    if (windows.length > 50) CHECK(flops(at::arange(windows.length).lt(20).unsqueeze(0)) < all / 2);
  }
}

TEST_CASE("fused windows keep no weights and no copies of keys") {
  install_caching_allocator();
  const int64_t n = 4096;
  const at::Tensor x = random_tensor("x", {1, 2, n, 16}, at::kFloat).requires_grad_(true);
  reset_host_peak();
  const int64_t before = host_memory().live_bytes, one = x.numel() * static_cast<int64_t>(sizeof(float));
  window_attention(x, x, x, {}, {Windows::sliding(n, 64, 64), {}, {}}).sum().backward();
  // Output, its gradient, three gradients and their sum; log-sums, and what sum() and threads need.
  CHECK(host_memory().peak_bytes - before < 8 * one);
}

TEST_CASE("--kernels=check holds fused windows against their definition, --kernels=reference runs that") {
  WindowCase one{Windows::sliding(60, 5, 5), Extra::kShared, 2, 0.1, true, true};
  one.relative = true;
  const Built built = build(one, at::kFloat);
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(run_with_gradients([&](const Tensors& x) { return run(x, built, true); }, built.inputs));
  set_policy(Policy::kReference);
  const OpCounter counter;
  const Tensors& x = built.inputs;
  CHECK(at::equal(window_attention(x[0], x[1], x[2], {}, built.options),
                  window_attention_reference(x[0], x[1], x[2], {}, built.options)));
  set_policy(Policy::kAuto);
  CHECK(counter.counts().calls > 4);
}

}  // namespace xformer::kernels
