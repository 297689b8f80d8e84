// Hashed attention against its definition with all weights: outputs and gradients, over lengths, rounds, masks and
// dropout; buckets against theirs.
#include "kernels/hashed_attention/hashed_attention.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "core/random.h"
#include "fused_support.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/hashed_attention/token_rows.h"
#include "kernels/policy.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct HashedCase {
  int64_t n, chunk = 8, rounds = 2, buckets = 6;
  bool hashed = true, masked = false;
  double dropout = 0;
  int64_t b = 3, h = 2, d = 5, e = 4;
};

struct Built {
  at::Tensor buckets;
  HashedAttentionOptions options;
  Tensors inputs;  // q, v
};

// Sample 0 keeps everything, the last one nothing; between them there are holes.
at::Tensor random_valid(Stream& numbers, const HashedCase& one) {
  at::Tensor mask = at::zeros({one.b, one.n}, at::kBool);
  for (int64_t i = 0; i < one.b; ++i)
    for (int64_t j = 0; j < one.n; ++j)
      mask[i][j] = i == 0 || (i + 1 < one.b && j < one.n * 2 / 3 && numbers.next_below(4) > 0);
  return mask;
}

Built build(const HashedCase& one, at::ScalarType type) {
  Stream numbers(static_cast<uint64_t>(one.n * 100 + one.rounds));
  Built result;
  result.options.chunk = one.chunk;
  if (one.masked) result.options.valid = random_valid(numbers, one);
  if (one.dropout > 0) {
    DropoutStream stream(5);
    stream.set_step(3, 2);
    result.options.dropout = {one.dropout, stream.state, 4};
  }
  result.inputs = {random_tensor("q", {one.b, one.h, one.n, one.d}, type),
                   random_tensor("v", {one.b, one.h, one.n, one.e}, type)};
  if (!one.hashed) return result;
  result.buckets = at::full({one.b, one.h, one.rounds, hashed_slots(one.n, one.chunk)}, one.buckets, at::kLong);
  auto bucket = result.buckets.accessor<int64_t, 4>();
  for (int64_t i = 0; i < one.b; ++i)
    for (int64_t h = 0; h < one.h; ++h)
      for (int64_t r = 0; r < one.rounds; ++r)
        for (int64_t j = 0; j < one.n; ++j)
          if (!one.masked || result.options.valid[i][j].item<bool>())
            bucket[i][h][r][j] = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(one.buckets)));
  return result;
}

TensorFunction operator_of(const Built& built, bool fused) {
  return [&built, fused](const Tensors& x) {
    const auto& function = fused ? hashed_attention : hashed_attention_reference;
    return Tensors{function(x[0], x[1], built.buckets, built.options)};
  };
}

double difference_of(const HashedCase& one, at::ScalarType type) {
  const Built built = build(one, type);
  return worst_difference(operator_of(built, true), operator_of(built, false), built.inputs);
}

}  // namespace

TEST_CASE("fused hashed attention equals its definition, with gradients, for any length, rounds and mask") {
  for (const int64_t n : {9, 16, 17, 31, 64, 150})
    for (const int64_t rounds : {1, 2, 3})
      for (const int64_t chunk : {8, 33, 64})
        for (const bool masked : {false, true}) {
          if (n <= chunk) continue;
          HashedCase one{n, chunk, rounds};
          one.masked = masked;
          CAPTURE(n, rounds, chunk, masked);
          CHECK(difference_of(one, at::kDouble) < 1e-11);
          one.dropout = 0.3, one.buckets = 2;
          CHECK(difference_of(one, at::kDouble) < 1e-11);
          CHECK(difference_of(one, at::kFloat) < 3e-5);
        }
}

TEST_CASE("fused hashed attention without buckets is plain attention that avoids itself") {
  for (const int64_t n : {1, 2, 7, 40})
    for (const bool masked : {false, true}) {
      HashedCase one{n, 64};
      one.hashed = false, one.masked = masked;
      CAPTURE(n, masked);
      CHECK(difference_of(one, at::kDouble) < 1e-11);
      one.dropout = 0.2;
      CHECK(difference_of(one, at::kDouble) < 1e-11);
      if (n == 2) continue;  // each sees the other alone: gradients of q are zero, and float's are its rounding
      CHECK(difference_of(one, at::kFloat) < 3e-5);
    }
}

TEST_CASE("a token that sees no other reads itself, also in float, where -1e5 hides the log of a sum") {
  HashedCase one{10, 2, 3, 5};
  one.b = one.h = 1;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    Built built = build(one, type);
    at::Tensor valid = at::zeros({1, 10}, at::kBool);
    valid[0][4] = true;
    built.options.valid = valid;
    built.buckets.fill_(5);
    for (int64_t r = 0; r < 3; ++r) built.buckets[0][0][r][4] = r;
    const at::Tensor got = hashed_attention(built.inputs[0], built.inputs[1], built.buckets, built.options);
    CHECK(difference(got[0][0][4], built.inputs[1][0][0][4]) < 1e-6);
    CHECK(got.ne(0).sum().item<int64_t>() == one.e);
    const double worst = worst_difference(operator_of(built, true), operator_of(built, false), built.inputs);
    CHECK(worst < (type == at::kDouble ? 1e-11 : 1e-5));
  }
}

TEST_CASE("fused hashed attention gives the same bits with any number of threads") {
  HashedCase one{200, 16, 2, 12};
  one.b = 5, one.d = one.e = 32, one.masked = true, one.dropout = 0.1;
  const Built built = build(one, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors alone = run_with_gradients(operator_of(built, true), built.inputs);
  at::set_num_threads(5);
  const Tensors shared = run_with_gradients(operator_of(built, true), built.inputs);
  at::set_num_threads(before);
  for (size_t i = 0; i < alone.size(); ++i) CHECK(at::equal(alone[i], shared[i]));
}

TEST_CASE("fused hashed attention drops what kernels::dropout drops of the weights, sample by sample") {
  HashedCase one{40, 8};
  one.dropout = 0.5;
  const Built built = build(one, at::kDouble);
  const Tensors& x = built.inputs;
  const at::Tensor whole = hashed_attention(x[0], x[1], built.buckets, built.options);
  DropoutStream stream(5);
  stream.set_step(3, 4);  // the third sample of a batch that began at row 2
  HashedAttentionOptions later = built.options;
  later.dropout.state = stream.state;
  const auto last = [](const at::Tensor& t) { return t.narrow(0, 2, 1); };
  CHECK(at::equal(hashed_attention(last(x[0]), last(x[1]), last(built.buckets), later), last(whole)));
  later.dropout = {};
  CHECK(difference(hashed_attention(x[0], x[1], built.buckets, later), whole) > 1e-3);
}

TEST_CASE("fused hashed attention takes views as they lie, counts its FLOPs and lays out its result") {
  const at::Tensor packed = random_tensor("packed", {2, 40, 3, 2, 8});  // [b, n, h, 2, d]
  const auto part = [&](int64_t which) { return packed.select(3, which).transpose(1, 2); };
  HashedCase one{40, 8, 2};
  one.b = 2, one.h = 3;
  const Built built = build(one, at::kDouble);
  at::Tensor got;
  const OpCounter counter;
  got = hashed_attention(part(0), part(1), built.buckets, built.options);
  CHECK(counter.counts().flops == 2 * 8 * 3 * 2 * 40 * 8 * 8);
  CHECK(difference(got, hashed_attention_reference(part(0), part(1), built.buckets, built.options)) < 1e-13);
  CHECK(got.transpose(1, 2).is_contiguous());
  const at::Tensor odd = random_tensor("odd", {2, 3, 8, 40}).transpose(2, 3);
  CHECK(difference(hashed_attention(odd, odd, built.buckets, built.options),
                   hashed_attention_reference(odd, odd, built.buckets, built.options)) < 1e-13);
}

TEST_CASE("fused hashed attention: padding may hold anything, NaN elsewhere is not lost") {
  HashedCase one{40, 8, 2};
  one.masked = true;
  Built built = build(one, at::kDouble);
  const at::Tensor clean = hashed_attention(built.inputs[0], built.inputs[1], built.buckets, built.options);
  const at::Tensor invalid = built.options.valid.logical_not().unsqueeze(1).unsqueeze(-1);
  const at::Tensor q = built.inputs[0].masked_fill(invalid, NAN), v = built.inputs[1].masked_fill(invalid, INFINITY);
  CHECK(at::equal(hashed_attention(q, v, built.buckets, built.options), clean));
  at::Tensor spoilt = built.inputs[1].clone();
  spoilt[0].fill_(NAN);
  CHECK(hashed_attention(built.inputs[0], spoilt, built.buckets, built.options)[0].isnan().all().item<bool>());
}

TEST_CASE("buckets on the CPU are those of the definition") {
  for (const int64_t n : {9, 64, 300})
    for (const std::vector<int64_t>& factors : {std::vector<int64_t>{2}, {16}, {4, 8}}) {
      int64_t columns = 0;
      for (const int64_t factor : factors) columns += factor / 2;
      // Few whole numbers, which products and bf16 leave exact: some directions reach the same, and the first counts.
      const at::Tensor q = (3 * random_tensor("q", {3, n, 2, 5}, at::kFloat)).round().transpose(1, 2),
                       directions = random_tensor("directions", {2, 5, 2, columns}, at::kFloat).sign();
      HashedAttentionOptions options;
      options.chunk = 8;
      for (const bool masked : {false, true}) {
        if (masked) {
          options.valid = at::ones({3, n}, at::kBool);
          options.valid.narrow(1, n / 2, n - n / 2).fill_(false);
        }
        const at::Tensor meant = hash_buckets_reference(q, directions, factors, options);
        CHECK(at::equal(hash_buckets(q, directions, factors, options), meant));
        CHECK(at::equal(hash_buckets(q.to(at::kBFloat16), directions, factors, options), meant));
        CHECK(at::equal(hash_buckets(q.to(at::kDouble), directions.to(at::kDouble), factors, options), meant));
      }
    }
}

TEST_CASE("--kernels=check compares what buckets reach, whichever of equal directions won") {
  const at::Tensor q = random_tensor("q", {2, 2, 300, 32}, at::kFloat);
  at::Tensor directions = random_tensor("directions", {2, 32, 2, 12}, at::kFloat);
  directions.select(3, 7).copy_(directions.select(3, 3) * (1 + 1e-7));
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(hash_buckets(q, directions, {16, 8}, {}));
  set_policy(Policy::kAuto);
}

TEST_CASE("a digit is the place of the first largest number of a row or of its negative, by every way") {
  Stream numbers(7);
  for (int64_t count = 1; count <= 40; ++count)
    for (int turn = 0; turn < 20; ++turn) {
      // Few sizes, so that some are equal; behind the row lies what is larger than all of it.
      std::vector<float> row(static_cast<size_t>(count + 16), 100);
      for (int64_t i = 0; i < count; ++i)
        row[static_cast<size_t>(i)] =
            turn == 0 ? NAN : static_cast<float>(numbers.next_below(9)) - (turn % 2 == 0 ? 4.0F : 10.0F);
      if (turn == 1) row[static_cast<size_t>(count / 2)] = NAN;
      int64_t meant = 0;
      float most = -1;
      for (int64_t i = 0; i < count; ++i) {
        const float one = row[static_cast<size_t>(i)];
        if (std::abs(one) > most) most = std::abs(one), meant = one < 0 ? i + count : i;
      }
      const std::vector<double> wide(row.begin(), row.end());
      CAPTURE(count, turn);
      CHECK(digit_of(row.data(), count) == meant);
      CHECK(digit_of(wide.data(), count) == meant);
      if (has_512()) CHECK(by_512::digit_of(row.data(), count) == meant);
    }
}

}  // namespace xformer::kernels
