// Fused attention against its definition with all weights: outputs and gradients, over shapes, masks and dropout.
#include "kernels/attention/attention.h"

#include <ATen/Parallel.h>

#include "core/error.h"
#include "core/random.h"
#include "fused_support.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/policy.h"
#include "tensor/memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct AttentionCase {
  int64_t b, h, n, m, d, e;
  double dropout = 0;
  bool causal = false, masked = false, holes = false;
};

at::Tensor random_mask(Stream& numbers, int64_t rows, int64_t length, bool holes) {
  at::Tensor mask = at::zeros({rows, length}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) {
    // Row 0 keeps everything, the last one may lose all.
    const auto valid = row == 0 ? length : static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(length + 1)));
    for (int64_t i = 0; i < valid; ++i) mask[row][i] = !holes || row == 0 || numbers.next_below(4) > 0;
  }
  return mask;
}

AttentionOptions options_of(const AttentionCase& one, Stream& numbers) {
  AttentionOptions options;
  options.scale = 0.7;
  options.mask.causal = one.causal;
  if (one.masked) {
    options.mask.key_valid = random_mask(numbers, one.b, one.m, one.holes);
    options.query_valid = one.n == one.m ? options.mask.key_valid : random_mask(numbers, one.b, one.n, one.holes);
  }
  DropoutStream stream(5);
  stream.set_step(3, 2);
  options.dropout = {one.dropout, stream.state, 4};
  return options;
}

double difference_of(const AttentionCase& one, at::ScalarType type) {
  Stream numbers(static_cast<uint64_t>(one.n * 1000 + one.m));
  const AttentionOptions options = options_of(one, numbers);
  return worst_difference(
      [&](const Tensors& x) { return Tensors{attention(x[0], x[1], x[2], options)}; },
      [&](const Tensors& x) { return Tensors{attention_reference(x[0], x[1], x[2], options)}; },
      {random_tensor("q", {one.b, one.h, one.n, one.d}, type), random_tensor("k", {one.b, one.h, one.m, one.d}, type),
       random_tensor("v", {one.b, one.h, one.m, one.e}, type)});
}

}  // namespace

TEST_CASE("fused attention equals its definition, with gradients, for any shape and mask") {
  const std::vector<AttentionCase> cases = {
      {1, 1, 1, 1, 1, 1},
      {2, 2, 7, 7, 4, 4, 0.3},
      {2, 3, 64, 256, 8, 8, 0.1, false, true},
      {3, 2, 65, 257, 8, 5, 0.1, false, true, true},
      {2, 2, 300, 300, 16, 16, 0, true},
      {2, 1, 301, 301, 8, 8, 0.2, true, true},
      {3, 1, 130, 130, 8, 8, 0.2, true, true, true},
      {2, 2, 513, 30, 8, 8, 0.1, false, true},
      {2, 2, 30, 513, 8, 16, 0.1, false, true, true},
      {4, 2, 64, 520, 8, 8, 0.2, false, true},
      {4, 1, 50, 50, 8, 8, 0.2, true, true, true},
      {1, 1, 700, 1100, 4, 4, 0.5},
  };
  for (const AttentionCase& one : cases) {
    CAPTURE(one.n, one.m, one.dropout, one.causal, one.masked, one.holes);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
    CHECK(difference_of(one, at::kFloat) < 3e-5);
  }
}

TEST_CASE("fused attention over random shapes") {
  Stream numbers(99);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(numbers.next_below(bound)); };
  for (int turn = 0; turn < 25; ++turn) {
    AttentionCase one{1 + below(3), 1 + below(3), 1 + below(200), 0, 1 + below(20), 1 + below(20)};
    one.m = 1 + below(600);
    one.causal = below(3) == 0;
    if (one.causal) one.m = one.n;
    one.masked = below(2) == 0;
    one.holes = below(2) == 0;
    one.dropout = below(2) == 0 ? 0.25 : 0;
    CAPTURE(one.b, one.h, one.n, one.m, one.d, one.e, one.causal, one.masked, one.holes, one.dropout);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
  }
}

TEST_CASE("fused attention deals the keys of few heads out to many threads") {
  const int before = at::get_num_threads();
  for (const int threads : {1, 5}) {
    at::set_num_threads(threads);
    CHECK(difference_of({1, 1, 200, 1500, 8, 8, 0.1, false, true}, at::kDouble) < 1e-11);
    CHECK(difference_of({1, 1, 1500, 1500, 4, 4, 0.1, true, true}, at::kDouble) < 1e-11);
  }
  at::set_num_threads(before);
}

TEST_CASE("fused attention takes views as they lie, and lays its result out for an output projection") {
  const at::Tensor packed = random_tensor("packed", {2, 40, 3, 3, 8});  // [b, n, h, 3, d]
  const auto part = [&](int64_t which) { return packed.select(3, which).transpose(1, 2); };
  const AttentionOptions options{0.5, {}, {}, 0, {}, 0};
  const at::Tensor got = attention(part(0), part(1), part(2), options);
  CHECK(difference(got, attention_reference(part(0), part(1), part(2), options)) < 1e-13);
  CHECK(got.transpose(1, 2).is_contiguous());
  // Widths and lengths that no BLAS reads in place.
  const at::Tensor odd = random_tensor("odd", {2, 3, 8, 40}).transpose(2, 3), one_row = odd.narrow(2, 0, 1);
  CHECK(difference(attention(odd, odd, odd, options), attention_reference(odd, odd, odd, options)) < 1e-13);
  const at::Tensor same_row = one_row.expand({2, 3, 9, 8});
  CHECK(difference(attention(odd, same_row, same_row, options), attention_reference(odd, same_row, same_row, options)) <
        1e-13);
}

TEST_CASE("fused attention keeps no weights: its memory grows with the length, not with its square") {
  const auto peak = [](int64_t n) {
    at::Tensor x = random_tensor("x", {1, 2, n, 16}, at::kFloat).requires_grad_(true);
    reset_host_peak();
    const int64_t before = host_memory().live_bytes;
    attention(x, x, x, {1, {}, {}, 0, {}, 0}).sum().backward();
    return host_memory().peak_bytes - before;
  };
  install_caching_allocator();
  const int64_t shorter = peak(1024), longer = peak(4096);
  CHECK(longer <= 5 * shorter);
  CHECK(longer < 2 * 4096 * 4096);
}

TEST_CASE("fused attention: nothing comes out of NaN but NaN, and nothing of padding") {
  const AttentionOptions plain{1, {}, {}, 0, {}, 0};
  at::Tensor q = random_tensor("q", {1, 1, 5, 4}), k = random_tensor("k", {1, 1, 300, 4}), v = k.clone();
  q[0][0][2][1] = NAN;
  const at::Tensor rows = attention(q, k, v, plain).isnan().any(-1).view({5});
  CHECK(rows.sum().item<int64_t>() == 1);
  CHECK(rows[2].item<bool>());
  // Behind the last valid key anything may stand.
  q[0][0][2][1] = 0;
  k.narrow(2, 200, 100).fill_(NAN);
  v.narrow(2, 200, 100).fill_(NAN);
  AttentionOptions masked = plain;
  masked.mask.key_valid = at::arange(300).lt(200).unsqueeze(0);
  CHECK(difference(attention(q, k, v, masked),
                   attention_reference(q, k.narrow(2, 0, 200), v.narrow(2, 0, 200), plain)) < 1e-13);
}

TEST_CASE("fused attention counts what its tiles multiplied, and skips padding") {
  const at::Tensor x = random_tensor("x", {1, 2, 600, 8}, at::kFloat);
  const auto flops = [&](const AttentionOptions& options) {
    const OpCounter counter;
    static_cast<void>(attention(x, x, x, options));
    return counter.counts().flops;
  };
  AttentionOptions options{1, {}, {}, 0, {}, 0};
  CHECK(flops(options) == 2 * 2 * 2 * 600 * 600 * 8);
  options.mask.key_valid = options.query_valid = at::arange(600).lt(150).unsqueeze(0);
  CHECK(flops(options) == 2 * 2 * 2 * 192 * 150 * 8);  // three blocks of 64 queries
  options.mask.key_valid = at::Tensor();
  options.mask.causal = true;
  options.query_valid = at::Tensor();
  CHECK(flops(options) < 2 * 2 * 2 * 600 * 600 * 8 * 6 / 10);
}

// Code has the distance between rows as a constant, so it must not be a sample's own number of keys.
TEST_CASE("fused attention makes code for pieces of lengths, and none for a length of which all pieces were met") {
  if (!tile_products().available) {
    WARN("skipped: " << tile_products().note);
    SUCCEED();
    return;
  }
  constexpr int64_t kLength = 512;
  const auto run = [&](int64_t length, at::ScalarType type) {
    AttentionOptions options;
    options.mask.key_valid = at::arange(kLength).lt(length).unsqueeze(0);
    options.query_valid = options.mask.key_valid;
    Tensors x;
    for (const char* name : {"q", "k", "v"})
      x.push_back(random_tensor(name, {1, 1, kLength, 8}, at::kFloat).to(type).requires_grad_());
    attention(x[0], x[1], x[2], options).sum().backward();
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    const int64_t before = tile_products_made();
    // Of a block of keys, and of a little of a second one, whose products are added to what is there.
    for (int64_t length = 1; length <= 320; ++length) run(length, type);
    for (int64_t length = 336; length <= kLength; length += 16) run(length, type);
    const int64_t made = tile_products_made();
    CHECK(made > before);
    for (int64_t length = 321; length <= kLength; length += 2) run(length, type);
    CHECK(tile_products_made() == made);
  }
}

// As landmarks are, of which a short sample has few.
TEST_CASE("of few queries fused attention multiplies sixteens, and makes code for no other number of them") {
  const auto run = [](int64_t queries, at::ScalarType type) {
    const at::Tensor q = random_tensor("q", {1, 2, 64, 8}, at::kFloat).to(type).requires_grad_(),
                     k = random_tensor("k", {1, 2, 600, 8}, at::kFloat).to(type).requires_grad_();
    AttentionOptions options;
    options.query_valid = at::arange(64).lt(queries).unsqueeze(0);
    const OpCounter counter;
    attention(q, k, k, options).sum().backward();
    return counter.counts().flops;
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    const int64_t one = 2 * 2 * 16 * 600 * 8;  // a product of a sixteen of rows, of both heads
    for (const int64_t sixteens : {1, 2, 3, 4}) CHECK(run(16 * sixteens, type) == 7 * sixteens * one);
    const int64_t made = tile_products_made();
    CHECK(run(1, type) == 7 * one);
    CHECK(run(20, type) == 7 * 2 * one);
    CHECK(run(63, type) == 7 * 4 * one);
    CHECK(run(0, type) == 0);
    CHECK(tile_products_made() == made);
  }
}

TEST_CASE("--kernels=check holds fused attention against its definition, --kernels=reference runs that") {
  const at::Tensor x = random_tensor("x", {1, 2, 30, 8}, at::kFloat).requires_grad_(true);
  const AttentionOptions options{1, {}, {}, 0, {}, 0};
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(attention(x, x, x, options).sum().backward());
  set_policy(Policy::kReference);
  const OpCounter counter;
  CHECK(at::equal(attention(x, x, x, options), attention_reference(x, x, x, options)));
  set_policy(Policy::kAuto);
  CHECK(counter.counts().calls > 4);
}

}  // namespace xformer::kernels
