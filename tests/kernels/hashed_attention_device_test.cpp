// Hashed attention as a device computes it, walked on the CPU, against the definition in double precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/hashed_attention/device.h"
#include "kernels/hashed_attention/pass.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::hashed_attention_device_test {

namespace {

struct WalkedHashes {
  int64_t n = 40, chunk = 8, rounds = 2, buckets = 6;  // no buckets: all tokens look at all
  int64_t d = 8, e = 8, b = 2, h = 1;
  bool masked = false, gaps = false, tf32 = false;
  double p = 0.2;
};

struct Given {
  at::Tensor q, v, buckets, gradient;
  HashedAttentionOptions options;
};

// Random for valid tokens, the highest for the others.
at::Tensor buckets_of(const WalkedHashes& one, const at::Tensor& valid) {
  Stream numbers(static_cast<uint64_t>(one.n * 100 + one.rounds));
  const int64_t slots = hashed_slots(one.n, one.chunk);
  at::Tensor buckets = at::full({one.b, one.h, one.rounds, slots}, one.buckets, at::kLong);
  auto* bucket = buckets.data_ptr<int64_t>();
  for (int64_t i = 0; i < buckets.numel(); ++i) {
    const int64_t token = i % slots, sample = i / (one.h * one.rounds * slots);
    if (token >= one.n || (valid.defined() && !valid[sample][token].item<bool>())) continue;
    bucket[i] = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(one.buckets)));
  }
  return buckets;
}

Given given_of(const WalkedHashes& one) {
  Given given{float_heads("q", {one.b, one.h, one.n, one.d}, one.gaps),
              float_heads("v", {one.b, one.h, one.n, one.e}, one.gaps),
              {},
              float_heads("gradient", {one.b, one.h, one.n, one.e}, one.gaps),
              {}};
  given.options.chunk = one.chunk;
  if (one.masked) given.options.valid = ragged_flags(one.b, one.n);
  given.options.dropout = place_of(one.p);
  if (one.buckets > 0) given.buckets = buckets_of(one, given.options.valid);
  return given;
}

// Output and the gradients of q and v.
Tensors walked(const Given& given, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const HashedArguments& a) { run_hashed_attention(a, backward, walking(order)); };
  };
  const HashedAttentionForward forward =
      hashed_attention_forward_device(given.q, given.v, given.buckets, given.options, launch(false));
  const HashedAttentionGradients found =
      hashed_attention_backward_device(given.gradient, given.q, given.v, forward, given.options, launch(true));
  return {forward.out, found.q, found.v};
}

Tensors defined(const Given& given) {
  return in_double(
      [&](const Tensors& in) {
        return Tensors{hashed_attention_reference(in[0], in[1], given.buckets, given.options)};
      },
      {given.q, given.v}, {given.gradient});
}

double worst_of(const WalkedHashes& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  const Given given = given_of(one);
  const Tensors meant = defined(given);
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const double worst = worst_walked([&](WalkOrder order) { return walked(given, order); }, meant, both_orders, first);
  at::globalContext().setAllowTF32CuBLAS(false);
  return worst;
}

constexpr double kLikeFloat = 2e-5, kLikeTf32 = 1e-2;

at::Tensor walked_order(const at::Tensor& buckets, int parts, WalkOrder order) {
  const at::Tensor result = at::full(buckets.sizes(), -1, at::kInt);
  const HashedOrderArguments a{buckets.const_data_ptr<int64_t>(), result.data_ptr<int>(),
                               buckets.numel() / buckets.size(3), static_cast<int>(buckets.size(3)), parts};
  walk(HashedOrderProgram::grid(a), HashedOrderProgram{a}, order);
  return result;
}

int counted_launches = 0;

auto counts_launches(bool backward) {
  return [backward](const HashedArguments& a) {
    run_hashed_attention(a, backward, [](const LaunchGrid&, const auto&) { ++counted_launches; });
  };
}

HashedAttentionForward counted_forward(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                                       const HashedAttentionOptions& options) {
  return hashed_attention_forward_device(q, v, buckets, options, counts_launches(false));
}

HashedAttentionGradients counted_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& v,
                                          const HashedAttentionForward& forward,
                                          const HashedAttentionOptions& options) {
  return hashed_attention_backward_device(gradient, q, v, forward, options, counts_launches(true));
}

at::Tensor counted_buckets(const at::Tensor& q, const at::Tensor& directions, const std::vector<int64_t>& factors,
                           const HashedAttentionOptions& options) {
  return hash_buckets_device(q, directions, factors, options, [](const HashBucketArguments&) { ++counted_launches; });
}

// Lists of all tokens in chunks that are whole lists.
constexpr HashedArguments planned_hashes(int64_t heads, int64_t slots, int64_t rounds) {
  HashedArguments a;
  a.b = static_cast<int>(heads), a.h = 1, a.rounds = static_cast<int>(rounds);
  a.n = a.slots = a.chunk = a.before = static_cast<int>(slots);
  a.sorting.lists = heads * rounds, a.sorting.slots = a.slots;
  const int64_t most = (slots + kCountedValues - 1) / kCountedValues;
  a.sorting.parts = static_cast<int>(std::clamp<int64_t>(kSpreadBlocks / a.sorting.lists, 1, most));
  return a;
}

constexpr bool order_fits(const HashedArguments& a) {
  HashBucketArguments buckets;
  buckets.b = a.b, buckets.h = a.h, buckets.n = a.n, buckets.slots = a.slots, buckets.rounds = a.rounds;
  return HashedOrderProgram::kThreads * HashedOrderProgram::slots_each(a.slots) >= a.slots &&
         launch_fits<HashedOrderProgram>(HashedOrderProgram::grid(a.sorting)) &&
         launch_fits<HashBucketsProgram>(HashBucketsProgram::grid(buckets));
}

// Of what the programs take, where each round leaves a row of 8 channels. Lists that are not sorted are one round; to
// more of those that are than blocks there is no launch.
constexpr bool hashes_fit(int64_t heads, int64_t slots, int64_t rounds) {
  if (std::max(heads, slots * rounds) > kHashedMost || !is_held(heads, slots * rounds, 8)) return true;
  const bool sorted = slots <= kMostSlots;
  if (sorted && heads * rounds > kMostBlocks) return true;
  if (!sorted && rounds > 1) return true;
  const HashedArguments a = planned_hashes(heads, slots, rounds);
  using Queries = HashedAttentionQueryProgram<ProductKind::kFloat, 64>;
  return (!sorted || order_fits(a)) && a.total() + a.width() + kTileSide > a.total() &&
         launch_fits<Queries>(hashed_grid(a, 64, 4)) && launch_fits<Queries>(hashed_grid(a, 32, 4)) &&
         launch_fits<HashedAttentionGradientProgram<32>>(HashedToken<32>::grid(a)) &&
         launch_fits<HashedAttentionGradientProgram<64>>(HashedToken<64>::grid(a)) &&
         resident_blocks(kSm80, kTileThreads, 1, hashed_grid(a, 64, 4).shared_bytes) >= Queries::kResident;
}

}  // namespace

TEST_CASE("hashed attention on a device: every length from 1 to 130, in one chunk and in many") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    const int64_t rounds = n % 3 + 1, chunk = n % 5 + 5;
    // Of one or two tokens everything cancels but rounding.
    const double bound = n < 3 ? 1e-3 : kLikeFloat;
    // Where nothing changes a length has one of both and one order, in turns, masked or not.
    const bool masked = n % 4 > 1, near = near_border(n);
    const WalkOrder first = order_at(n);
    if (near || n % 2 == 0)
      CHECK(worst_of({.n = n, .chunk = chunk, .rounds = rounds, .masked = masked}, near, first) < bound);
    if (near || n % 2 == 1) CHECK(worst_of({.n = n, .buckets = 0, .masked = masked}, near, first) < bound);
  }
}

TEST_CASE("hashed attention on a device: rounds, chunks, masks and heads, in two orders") {
  const PoisonedMemory poisoned;
  for (const int64_t chunk : {1, 16, 33, 64, 70})
    for (const int64_t rounds : {1, 2, 3}) {
      CAPTURE(chunk, rounds);
      // Of one other key everything cancels but rounding.
      const double bound = chunk * rounds == 1 ? 1e-2 : kLikeFloat;
      CHECK(worst_of({.n = 75, .chunk = chunk, .rounds = rounds, .b = 3, .masked = true}, rounds == 2) < bound);
    }
  CHECK(worst_of({.n = 150, .chunk = 64, .buckets = 4, .b = 1, .h = 2}, true) < kLikeFloat);
  CHECK(worst_of({.n = 90, .chunk = 16, .rounds = 4, .buckets = 100, .h = 3, .masked = true}) < kLikeFloat);
  CHECK(worst_of({.n = 100, .buckets = 0, .b = 3, .h = 2, .masked = true}, true) < kLikeFloat);
  // Keys that are found in every round, and a chunk that is also the one before it.
  CHECK(worst_of({.n = 40, .chunk = 33, .rounds = 3, .buckets = 1, .p = 0}) < kLikeFloat);
  CHECK(worst_of({.n = 7, .chunk = 8, .rounds = 1, .masked = true}) < kLikeFloat);
  CHECK(worst_of({.n = 60, .chunk = 64, .rounds = 2}) < kLikeFloat);
}

TEST_CASE("hashed attention on a device: widths, strides and products") {
  const PoisonedMemory poisoned;
  CHECK(worst_of({.n = 66, .chunk = 20, .d = 32, .e = 32}, true) < kLikeFloat);
  CHECK(worst_of({.n = 66, .chunk = 64, .d = 64, .e = 48}, true) < kLikeFloat);
  CHECK(worst_of({.d = 5, .e = 7}) < kLikeFloat);
  CHECK(worst_of({.d = 20, .e = 64}) < kLikeFloat);
  CHECK(worst_of({.h = 3, .masked = true, .gaps = true}, true) < kLikeFloat);
  CHECK(worst_of({.n = 66, .chunk = 64, .d = 32, .e = 32, .tf32 = true}, true) < kLikeTf32);
  // TF32 is not float: the bound of one would catch the other.
  CHECK(worst_of({.n = 66, .chunk = 64, .d = 32, .e = 32, .tf32 = true}) > 10 * kLikeFloat);
}

TEST_CASE("hashed attention on a device: a token that sees no other reads itself, as often as its rounds keep it") {
  const PoisonedMemory poisoned;
  for (const double p : {0.0, 0.5}) {
    Given given = given_of({.n = 10, .chunk = 2, .rounds = 3, .b = 1, .p = p});
    given.options.valid = at::zeros({1, 10}, at::kBool);
    given.options.valid[0][4] = true;
    given.buckets.fill_(6);
    for (int64_t round = 0; round < 3; ++round) given.buckets[0][0][round][4] = round;
    const Tensors got = walked(given, WalkOrder::kForward), meant = defined(given);
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), meant[i]) < kLikeFloat);
    if (p == 0) CHECK(difference(got[0][0][0][4], given.v[0][0][4]) < 1e-6);
    CHECK(got[0].narrow(2, 5, 5).abs().max().item<float>() == 0);
    CHECK(got[1].abs().max().item<float>() == 0);
  }
}

TEST_CASE("hashed attention on a device: what stands in padding does not matter, and gets no gradient") {
  const PoisonedMemory poisoned;
  for (const int64_t buckets : {0, 6}) {
    Given given = given_of({.n = 70, .chunk = 16, .buckets = buckets, .b = 3, .h = 2, .masked = true});
    const Tensors clean = walked(given, WalkOrder::kForward);
    for (at::Tensor* x : {&given.q, &given.v, &given.gradient}) *x = lost_padding(*x, given.options.valid);
    const Tensors lost = walked(given, WalkOrder::kForward);
    const at::Tensor padding = given.options.valid.logical_not().unsqueeze(1).unsqueeze(-1);
    for (size_t i = 0; i < lost.size(); ++i) {
      CHECK(at::equal(lost[i], clean[i]));
      CHECK(lost[i].masked_select(padding).abs().max().item<float>() == 0);
    }
  }
}

TEST_CASE("hashed attention on a device drops the elements that the CPU drops") {
  // Values tell the keys apart: a part of the output that is zero has all its weights dropped.
  WalkedHashes one{.n = 40, .chunk = 8, .rounds = 1, .e = 40, .p = 0.6};
  Given given = given_of(one);
  given.v = at::eye(40).expand({2, 1, 40, 40});
  const at::Tensor weights = walked(given, WalkOrder::kForward)[0];
  const at::Tensor meant = hashed_attention_forward_cpu(given.q, given.v, given.buckets, given.options).out;
  CHECK(at::equal(weights.gt(0), meant.gt(0)));
  CHECK(meant.gt(0).sum().item<int64_t>() > 100);
}

TEST_CASE("hashed attention on a device: lists are in the order of their buckets, equal ones in theirs") {
  for (const int64_t slots : {1, 7, 64, 128, 129, 1000, 3000})
    for (const int64_t buckets : {1, 31, 32, 33, 64, 200}) {
      CAPTURE(slots, buckets);
      at::Tensor numbers = at::empty({1, 2, 1, slots}, at::kLong);
      for (int64_t i = 0; i < 2 * slots; ++i) numbers.data_ptr<int64_t>()[i] = (i * i + i / 7) % buckets;
      if (slots > 64) numbers.narrow(3, slots - 60, 60).fill_(buckets);
      const at::Tensor meant = sorted_tokens(numbers);
      for (const int parts : {1, 3}) {
        CHECK(at::equal(walked_order(numbers, parts, WalkOrder::kForward), meant));
        CHECK(at::equal(walked_order(numbers, parts, WalkOrder::kBackward), meant));
      }
    }
}

TEST_CASE("buckets on a device are those of the CPU") {
  const PoisonedMemory poisoned;
  for (const int64_t n : {1, 9, 64, 100})
    for (const std::vector<int64_t>& factors : {std::vector<int64_t>{2}, {16}, {4, 8}, {64}, {16, 32}, {2, 6, 4, 2}}) {
      int64_t columns = 0;
      for (const int64_t factor : factors) columns += factor / 2;
      // Whole numbers, whose products are exact: of equal ones the first counts.
      const at::Tensor q = (3 * random_tensor("q", {3, n, 2, 5}, at::kFloat)).round().transpose(1, 2),
                       directions = random_tensor("directions", {2, 5, 2, columns}, at::kFloat).sign();
      HashedAttentionOptions options;
      options.chunk = 8;
      for (const bool masked : {false, true}) {
        if (masked) options.valid = ragged_flags(3, n);
        const at::Tensor meant = hash_buckets_cpu(q, directions, factors, options);
        for (const WalkOrder order : {WalkOrder::kForward, WalkOrder::kBackward}) {
          const auto launch = [order](const HashBucketArguments& a) {
            walk(HashBucketsProgram::grid(a), HashBucketsProgram{a}, order);
          };
          CHECK(at::equal(hash_buckets_device(q, directions, factors, options, launch), meant));
        }
      }
    }
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of hashed attention runs them: one launch for buckets, three forwards, three back") {
  counted_launches = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("hash_buckets", dispatched<counted_buckets>);
  library.impl("hashed_attention_forward", dispatched<counted_forward>);
  library.impl("hashed_attention_backward", dispatched<counted_backward>);
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kFloat);
  const at::Tensor buckets =
      hash_buckets(at::empty({2, 3, 20, 4}, options), at::empty({3, 4, 2, 5}, options), {2, 8}, {8, false, {}, {}});
  CHECK(buckets.sizes() == at::IntArrayRef({2, 3, 2, 24}));
  CHECK(std::exchange(counted_launches, 0) == 1);
  for (const bool hashed : {true, false}) {
    const Tensors inputs{at::empty({2, 3, 20, 64}, options).requires_grad_(true),
                         at::empty({2, 3, 20, 8}, options).requires_grad_(true)};
    const at::Tensor out = hashed_attention(inputs[0], inputs[1], hashed ? buckets : at::Tensor(), {8, false, {}, {}});
    CHECK(out.sizes() == inputs[1].sizes());
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    CHECK(std::exchange(counted_launches, 0) == (hashed ? 6 : 5));
  }
  const auto fits = [](at::ScalarType type, int64_t d, int64_t slots) {
    const at::Tensor x = at::empty({1, 1, 2, d}, type);
    return fits_hashed_programs(x, x, at::empty({1}, at::kLong).expand({1, 1, 2, slots}));
  };
  CHECK(fits(at::kFloat, kHashedHeadWidest, kMostSlots));
  CHECK_FALSE(fits(at::kFloat, kHashedHeadWidest + 1, 2));
  CHECK_FALSE(fits(at::kFloat, 32, kMostSlots + 1));
  CHECK_FALSE(fits(at::kDouble, 32, 2));
  const auto buckets_fit = [](int64_t columns, at::ScalarType type, const std::vector<int64_t>& factors) {
    return fits_bucket_program(at::empty({1, 1, 2, 3}, type), at::empty({1, 3, 1, columns}, type), factors, 2);
  };
  // As many buckets as an int counts.
  CHECK(buckets_fit(1 << 14, at::kFloat, {1 << 14, 1 << 14}));
  CHECK_FALSE(buckets_fit(1 << 15, at::kFloat, {1 << 15, 1 << 14}));
  CHECK_FALSE(buckets_fit(1 << 16, at::kFloat, {1 << 16, 1 << 16, 1 << 16, 1 << 16}));
  CHECK_FALSE(fits_bucket_program(at::empty({1, 1, 2, 3}), at::empty({1, 3, 1, 1}), {2}, kHashedMost + 1));
  CHECK(buckets_fit(4, at::kFloat, {2, 2, 2, 2}));
  CHECK_FALSE(buckets_fit(5, at::kFloat, {2, 2, 2, 2, 2}));
  CHECK_FALSE(buckets_fit(4, at::kDouble, {8}));
}

TEST_CASE("plans of hashed attention fit a device at any size") {
  STATIC_REQUIRE(all_fit({1, 2, 8, 4096}, hashes_fit));
  STATIC_REQUIRE(hashes_fit(1, kMostSlots, kHashedMost / kMostSlots));
  STATIC_REQUIRE(hashes_fit(8, kHashedMost, 1));
  STATIC_REQUIRE(hashes_fit(kHashedMost, 1, 1));
  // The last thread but those that have nothing has the last token.
  const HashedArguments a = planned_hashes(8, kHashedMost, 1);
  const int64_t tokens = 8 * kHashedMost;
  const HashedToken<64> last(NumberedThread<kTileThreads>{tokens * HashedToken<64>::kLanes - 1}, a),
      behind(NumberedThread<kTileThreads>{tokens * HashedToken<64>::kLanes}, a);
  CHECK((last.there && last.head == 7 && last.token == kHashedMost - 1 && last.of_round(0) == tokens - 1));
  CHECK_FALSE(behind.there);
}

}  // namespace xformer::kernels::hashed_attention_device_test
