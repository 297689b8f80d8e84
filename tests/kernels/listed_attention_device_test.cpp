// Attention over listed keys as a device computes it, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/listed_attention/device.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::listed_attention_device_test {

namespace {

struct WalkedLists {
  int64_t n = 40, keys = 40, length = 6;
  int64_t lists = 0;  // 0: one for each row
  int64_t d = 8, e = 8, b = 2, h = 1;
  bool each_head = false, each_sample = false, masked = true, biased = false, gaps = false, shared_key = false;
  double p = 0.2;
  at::ScalarType type = at::kFloat;
};

// Distinct keys in any order with holes, all of them none in the first list.
at::Tensor places_of(const WalkedLists& one) {
  Stream numbers(static_cast<uint64_t>(one.n * 131 + one.length));
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(bound)));
  };
  const int64_t lists = one.lists > 0 ? one.lists : one.n;
  const at::Tensor places =
      at::full({one.each_sample ? one.b : 1, one.each_head ? one.h : 1, lists, one.length}, -1, at::kLong);
  std::vector<int64_t> order(static_cast<size_t>(one.keys));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  auto* const to = places.data_ptr<int64_t>();
  for (int64_t list = 0; list < places.numel() / one.length; ++list) {
    if (lists > 1 && list % lists == 0) continue;
    for (int64_t l = 0; l < std::min(one.length, one.keys); ++l) {
      std::swap(order[static_cast<size_t>(l)], order[static_cast<size_t>(l + below(one.keys - l))]);
      to[list * one.length + l] = below(4) == 0 ? -1 : order[static_cast<size_t>(l)];
      if (one.shared_key && to[list * one.length + l] == one.keys - 1) to[list * one.length + l] = -1;
    }
    if (one.shared_key) to[list * one.length] = one.keys - 1;
  }
  return places;
}

struct Given {
  at::Tensor q, k, v, bias, gradient;
  ListedAttentionOptions options;
};

Given given_of(const WalkedLists& one) {
  const auto heads = [&](const char* name, int64_t rows, int64_t width) {
    return float_heads(name, {one.b, one.h, rows, width}, one.gaps).to(one.type);
  };
  Given given{heads("q", one.n, one.d),
              heads("k", one.keys, one.d),
              heads("v", one.keys, one.e),
              one.biased ? random_tensor("bias", {one.b, one.h, one.n, one.length}, at::kFloat) : at::Tensor(),
              heads("gradient", one.n, one.e),
              {places_of(one), {}, {}, {}, place_of(one.p)}};
  if (one.lists > 0) {
    given.options.lists = at::empty({one.b, one.h, one.n}, at::kLong);
    auto* const lists = given.options.lists.data_ptr<int64_t>();
    for (int64_t i = 0; i < given.options.lists.numel(); ++i) lists[i] = (i * i + 5 * i / 3) % one.lists;
  }
  if (one.masked) {
    given.options.key_valid = ragged_flags(one.b, one.keys);
    given.options.row_valid = one.n == one.keys ? given.options.key_valid : ragged_flags(one.b, one.n);
  }
  return given;
}

// Rows without a key have a log-sum of infinity.
at::Tensor told(const at::Tensor& log_sum) { return at::where(log_sum.isinf(), 100, log_sum).to(at::kDouble); }

// Output, gradients of q, k, v and the bias, log-sums.
Tensors walked(const Given& given, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const ListedArguments& a) { run_listed_attention<WalkedTypes>(a, backward, walking(order)); };
  };
  const ListedAttentionForward forward =
      listed_attention_forward_device(given.q, given.k, given.v, given.bias, given.options, launch(false));
  const ListedAttentionGradients found = listed_attention_backward_device(
      given.gradient, given.q, given.k, given.v, given.bias, forward, given.options, launch(true));
  Tensors result{forward.out, found.q, found.k, found.v};
  if (given.bias.defined()) result.push_back(found.bias);
  result.push_back(told(forward.log_sum));
  return result;
}

Tensors defined(const Given& given) {
  Tensors inputs{given.q, given.k, given.v};
  if (given.bias.defined()) inputs.push_back(given.bias);
  const auto definition = [&](const Tensors& in) {
    return Tensors{
        listed_attention_reference(in[0], in[1], in[2], given.options, in.size() > 3 ? in[3] : at::Tensor())};
  };
  Tensors result = in_double(definition, inputs, {given.gradient});
  for (at::Tensor& one : inputs) one = one.to(at::kDouble);
  inputs.resize(4);
  result.push_back(
      told(listed_attention_forward_cpu(inputs[0], inputs[1], inputs[2], inputs[3], given.options).log_sum));
  return result;
}

double worst_of(const WalkedLists& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  const Given given = given_of(one);
  return worst_walked([&](WalkOrder order) { return walked(given, order); }, defined(given), both_orders, first);
}

constexpr double kLikeFloat = 1e-5, kLikeHalf = 1.0 / 512, kLikeBFloat16 = 1.0 / 64;

// A reversal by itself.
struct ReversalProgram {
  static constexpr int kThreads = kListedThreads, kResident = 1;
  Reversal r;

  template <class Thread>
  void operator()(const Thread& thread) const {
    reverse_numbers(thread, r, thread.block());
  }
};

int counted_launches = 0;

auto counts_launches(bool backward) {
  return [backward](const ListedArguments& a) {
    run_listed_attention<WalkedTypes>(a, backward, [](const LaunchGrid&, const auto&) { ++counted_launches; });
  };
}

ListedAttentionForward counted_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const at::Tensor& bias, const ListedAttentionOptions& options) {
  return listed_attention_forward_device(q, k, v, bias, options, counts_launches(false));
}

ListedAttentionGradients counted_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const at::Tensor& bias,
                                          const ListedAttentionForward& forward,
                                          const ListedAttentionOptions& options) {
  return listed_attention_backward_device(gradient, q, k, v, bias, forward, options, counts_launches(true));
}

// A list for each row, or a few that rows share.
constexpr ListedArguments planned_lists(int64_t heads, int64_t n, int64_t length, bool shared) {
  ListedArguments a;
  a.b = static_cast<int>(heads), a.h = 1, a.n = a.m = static_cast<int>(n), a.length = static_cast<int>(length);
  a.c = shared ? 4 : a.n;
  a.readers = {nullptr, heads, a.c * a.length, a.m, nullptr, nullptr};
  if (shared) a.members = {nullptr, heads, a.n, a.c, nullptr, nullptr};
  return a;
}

constexpr bool lists_fit(const ListedArguments& a) {
  const ListedPlan plan = listed_plan(a.length);
  const LaunchGrid queries = listed_queries_grid(a);
  return plan.rows % kListedWarps == 0 && plan.stride % kRun == 0 && plan.stride * plan.pieces >= a.length &&
         (plan.pieces == 1 || plan.rows == kListedWarps) && is_division(listed_row_tiles(a), plan.rows, a.n) &&
         is_division(reversal_tiles(a.readers), kCountedValues, a.m) &&
         launch_fits<ListedAttentionForwardProgram<64, float>>(listed_rows_grid(a)) &&
         launch_fits<ListedAttentionQueryProgram<64, float>>(queries) &&
         launch_fits<ListedAttentionKeyProgram<64, float>>(listed_keys_grid(a)) &&
         resident_blocks(kSm80, kListedThreads, 1, queries.shared_bytes) >=
             ListedAttentionQueryProgram<64, float>::kResident;
}

// Of what the programs take, where eight tensors such as q are held.
constexpr bool planned_lists_fit(int64_t heads, int64_t n, int64_t length) {
  for (const bool shared : {false, true})
    if (std::max({heads, n, length}) <= kListedMost && (shared ? 4 : n) * length <= kListedMostPlaces &&
        is_held(heads, n, 8) && !lists_fit(planned_lists(heads, n, length, shared)))
      return false;
  return true;
}

}  // namespace

TEST_CASE("listed keys on a device: every number of rows from 1 to 130, near borders in two orders and in 16 bits") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    WalkedLists one{.n = n, .keys = n, .length = 2 + n * 7 % 40};
    // One key alone has no gradient but rounding's.
    CHECK(worst_of(one, near_border(n), order_at(n)) < (n > 1 ? kLikeFloat : 1e-3));
    if (!near_border(n) || n == 1) continue;
    one.type = n % 2 == 0 ? at::kHalf : at::kBFloat16;
    CHECK(worst_of(one, true) < (n % 2 == 0 ? kLikeHalf : kLikeBFloat16));
  }
}

TEST_CASE("listed keys on a device: lists of any length") {
  const PoisonedMemory poisoned;
  for (const int64_t length : {63, 64, 65, 128, 255, 256, 257, 512, 700}) {
    CAPTURE(length);
    CHECK(worst_of({.n = 7, .keys = 600, .length = length, .masked = length % 2 == 0, .biased = true}) < kLikeFloat);
  }
}

TEST_CASE("listed keys on a device: shared lists, lists of every head and sample, biases, padding, in two orders") {
  const PoisonedMemory poisoned;
  for (const bool biased : {false, true}) {
    CHECK(worst_of({.n = 50, .keys = 70, .b = 3, .h = 2, .each_head = true, .biased = biased}, true) < kLikeFloat);
    CHECK(worst_of({.n = 50, .keys = 33, .h = 2, .each_sample = true, .biased = biased, .p = 0}, true) < kLikeFloat);
    CHECK(worst_of({.lists = 5, .h = 2, .each_head = true, .each_sample = true, .biased = biased}, true) < kLikeFloat);
    CHECK(worst_of({.n = 70, .keys = 20, .lists = 40, .h = 2, .masked = false, .biased = biased}) < kLikeFloat);
  }
  // A cluster that all rows are in, and one whose list nobody reads.
  CHECK(worst_of({.n = 90, .keys = 130, .length = 32, .lists = 1}, true) < kLikeFloat);
  CHECK(worst_of({.n = 3, .keys = 130, .length = 32, .lists = 9}) < kLikeFloat);
}

TEST_CASE("listed keys on a device: a key that every row reads, and many places of few keys") {
  const PoisonedMemory poisoned;
  CHECK(worst_of({.n = 130, .keys = 131, .length = 5, .masked = false, .shared_key = true}, true) < kLikeFloat);
  CHECK(worst_of({.n = 130, .keys = 3, .length = 10, .biased = true}, true) < kLikeFloat);
}

TEST_CASE("listed keys on a device: widths and strides") {
  const PoisonedMemory poisoned;
  CHECK(worst_of({.length = 23, .d = 32, .e = 32}, true) < kLikeFloat);
  CHECK(worst_of({.length = 40, .d = 64, .e = 48}, true) < kLikeFloat);
  CHECK(worst_of({.length = 9, .d = 5, .e = 39}) < kLikeFloat);
  CHECK(worst_of({.d = 19, .e = 1, .h = 3, .gaps = true}, true) < kLikeFloat);
  CHECK(worst_of({.d = 64, .e = 20, .h = 2, .biased = true}) < kLikeFloat);
}

TEST_CASE("listed keys on a device: heads in 16 bits") {
  const PoisonedMemory poisoned;
  for (const auto& [type, bound] : {std::pair{at::kHalf, kLikeHalf}, {at::kBFloat16, kLikeBFloat16}}) {
    CAPTURE(type);
    CHECK(worst_of({.length = 23, .d = 32, .e = 32, .type = type}, true) < bound);
    CHECK(worst_of({.length = 300, .d = 64, .e = 48, .biased = true, .type = type}) < bound);
    CHECK(worst_of({.lists = 5, .d = 5, .e = 39, .h = 2, .each_head = true, .biased = true, .type = type}) < bound);
    CHECK(worst_of({.d = 19, .e = 8, .h = 3, .gaps = true, .type = type}) < bound);
  }
}

TEST_CASE("listed keys on a device: what stands in padding does not matter, and gets no gradient") {
  const PoisonedMemory poisoned;
  for (const int64_t lists : {0, 6}) {
    const WalkedLists one{.n = 60, .keys = 60, .lists = lists, .b = 3, .biased = true};
    Given given = given_of(one);
    const at::Tensor valid = given.options.key_valid;
    const Tensors clean = walked(given, WalkOrder::kForward);
    for (at::Tensor* x : {&given.q, &given.k, &given.v, &given.gradient}) *x = lost_padding(*x, valid);
    const Tensors lost = walked(given, WalkOrder::kForward);
    for (size_t i = 0; i < lost.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
    const at::Tensor padding = valid.logical_not().unsqueeze(1).unsqueeze(-1);
    REQUIRE(padding.any().item<bool>());
    for (size_t i = 0; i < 4; ++i) CHECK(lost[i].masked_select(padding).abs().max().item<float>() == 0);
  }
}

TEST_CASE("listed keys on a device: a reversal has the entries of each value once, whatever the order of blocks") {
  for (const int64_t values : {1, 31, 32, 33, 64, 100})
    for (const int64_t entries : {1, 127, 129, 1024, 3000}) {
      CAPTURE(values, entries);
      const at::Tensor numbers = at::empty({2, entries}, at::kLong);
      auto* const number = numbers.data_ptr<int64_t>();
      for (int64_t i = 0; i < 2 * entries; ++i) number[i] = (i * i + i / 7) % (values + 1) - 1;
      Tensors made[2];
      for (const WalkOrder order : {WalkOrder::kForward, WalkOrder::kBackward}) {
        Reversal r;
        const auto [starts, found] =
            reversal_tensors(r, numbers, 2, static_cast<int>(entries), static_cast<int>(values));
        found.fill_(-1);
        walk({reversal_blocks(r), kReversalInts * 4}, ReversalProgram{r}, order);
        made[order == WalkOrder::kBackward] = {starts, found};
        for (int64_t slice = 0; slice < 2; ++slice) {
          const int *start = r.starts + slice * (values + 1), *entry = r.found + slice * entries;
          std::vector<int> times(static_cast<size_t>(entries));
          CHECK(start[0] == 0);
          for (int64_t value = 0; value < values; ++value)
            for (int i = start[value]; i < start[value + 1]; ++i) {
              REQUIRE((entry[i] >= 0 && entry[i] < entries));
              CHECK(number[slice * entries + entry[i]] == value);
              ++times[static_cast<size_t>(entry[i])];
            }
          for (int64_t i = 0; i < entries; ++i)
            CHECK(times[static_cast<size_t>(i)] == (number[slice * entries + i] >= 0 ? 1 : 0));
        }
      }
      for (const size_t i : {0, 1}) CHECK(at::equal(made[0][i], made[1][i]));
    }
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of listed keys runs them: one launch forwards, two backwards") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("listed_attention_forward", dispatched<counted_forward>);
  library.impl("listed_attention_backward", dispatched<counted_backward>);
  const auto launches = [&](at::ScalarType type, int64_t d, bool biased, bool shared) {
    const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(type);
    const auto leaf = [&](at::IntArrayRef shape) { return at::empty(shape, options).requires_grad_(true); };
    Tensors inputs{leaf({2, 3, 20, d}), leaf({2, 3, 30, d}), leaf({2, 3, 30, d})};
    if (biased) inputs.push_back(at::empty({2, 3, 20, 7}, at::TensorOptions(at::kMeta)).requires_grad_(true));
    const at::Tensor places = at::empty({1, 3, shared ? 4 : 20, 7}, options.dtype(at::kLong));
    const at::Tensor lists = shared ? at::empty({2, 3, 20}, options.dtype(at::kLong)) : at::Tensor();
    const at::Tensor out = listed_attention(inputs[0], inputs[1], inputs[2], {places, lists, {}, {}, {}},
                                            biased ? inputs[3] : at::Tensor());
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].sizes() == inputs[i].sizes());
      CHECK(found[i].scalar_type() == inputs[i].scalar_type());
    }
    return std::exchange(counted_launches, 0);
  };
  CHECK(launches(at::kFloat, 64, false, false) == 3);
  CHECK(launches(at::kFloat, 8, true, true) == 3);
  for (const at::ScalarType half : {at::kHalf, at::kBFloat16})
    for (const bool biased : {false, true}) CHECK(launches(half, 32, biased, false) == 3);
  CHECK(launches(at::kFloat, kListedHeadWidest + 8, true, false) == 0);
  CHECK(launches(at::kDouble, 64, false, true) == 0);
}

TEST_CASE("plans of listed keys fit a device at any size, and have every row once") {
  STATIC_REQUIRE(all_fit({1, 5, 8, 23, 32, 33, 256, 257, 1 << 20, kListedMost}, planned_lists_fit));
  STATIC_REQUIRE(planned_lists_fit(1, kListedMost, 4));
  STATIC_REQUIRE(planned_lists_fit(kListedMost, 1, 1));
  // The last block has the last row, of which no place leaves an int64.
  for (const int64_t length : {int64_t{1}, int64_t{4}, int64_t{257}}) {
    const int64_t n = length == 257 ? 1 << 20 : kListedMost;
    const ListedArguments a = planned_lists(16, n, length, false);
    const ListedRows last(a, listed_rows_grid(a).blocks - 1);
    CAPTURE(length);
    CHECK((last.head == 15 && last.sample == 15 && last.of_sample == 0));
    CHECK((last.first < n && last.first + listed_plan(a.length).rows >= n));
    CHECK(last.statistic(static_cast<int>(n) - 1) * length == (16 * n - 1) * length);
  }
  const auto fits = [](int64_t heads, int64_t n, int64_t lists, int64_t length) {
    const at::TensorOptions nowhere(at::kMeta);
    const at::Tensor q = at::empty({heads, 1, n, 1}, nowhere);
    return fits_listed_programs(q, q, q, {}, at::empty({1, 1, lists, length}, nowhere.dtype(at::kLong)));
  };
  CHECK((fits(kListedMost, 1, 1, 1) && fits(1, kListedMost, kListedMost, 4) && fits(1, 1, 4, kListedMost)));
  CHECK_FALSE((fits(kListedMost + 1, 1, 1, 1) || fits(1, kListedMost + 1, 1, 1) || fits(1, 1, 1, kListedMost + 1)));
  CHECK_FALSE(fits(1, kListedMost, kListedMost, 5));
}

}  // namespace xformer::kernels::listed_attention_device_test
