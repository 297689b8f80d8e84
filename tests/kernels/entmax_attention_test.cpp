// Attention by alpha-entmax on a CPU against its definition with all weights: outputs and gradients, over powers,
// shapes, masks and dropout. The exact solutions by sorting and bisection are in tests/attention/entmax_test.cpp.
#include "kernels/entmax_attention/entmax_attention.h"

#include <ATen/Parallel.h>

#include "fused_support.h"
#include "kernels/fused.h"
#include "kernels/policy.h"
#include "place_support.h"
#include "poisoned_memory.h"
#include "policy_scope.h"
#include "tensor/memory.h"

namespace xformer::kernels::entmax_attention_test {

namespace {

struct EntmaxCase {
  int64_t b, h, n, m, d, e;
  double dropout = 0;
  bool causal = false, masked = false, holes = false;
  double spread = 2;
};

// Row 0 keeps everything, the last one loses all.
at::Tensor flags_of(int64_t rows, int64_t length, bool holes) {
  at::Tensor flags = at::zeros({rows, length}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) flags[row].narrow(0, 0, length - length * row / rows).fill_(true);
  if (rows > 1) flags[rows - 1].zero_();
  if (holes && rows > 1) flags.narrow(0, 1, rows - 1).logical_and_(at::arange(length).remainder(3).ne(1));
  return flags;
}

EntmaxAttentionOptions options_of(const EntmaxCase& one, double alpha) {
  EntmaxAttentionOptions options;
  options.alpha = alpha;
  options.rows.scale = 0.7;
  options.rows.mask.causal = one.causal;
  if (one.masked) {
    options.rows.mask.key_valid = flags_of(one.b, one.m, one.holes);
    options.rows.query_valid = flags_of(one.b, one.n, one.holes);
  }
  options.rows.dropout = place_of(one.dropout);
  return options;
}

// alpha 0: learned, another one for each head.
double difference_of(const EntmaxCase& one, double alpha, at::ScalarType type) {
  const EntmaxAttentionOptions options = options_of(one, alpha);
  Tensors in{random_tensor("q", {one.b, one.h, one.n, one.d}, type) * one.spread,
             random_tensor("k", {one.b, one.h, one.m, one.d}, type),
             random_tensor("v", {one.b, one.h, one.m, one.e}, type)};
  if (alpha == 0) in.push_back(at::linspace(1.05, 1.9, one.h, type));
  const auto with = [&](const auto& made) {
    return [&, made](const Tensors& x) {
      return Tensors{made(x[0], x[1], x[2], x.size() > 3 ? x[3] : at::Tensor(), options)};
    };
  };
  return worst_difference(with(entmax_attention), with(entmax_attention_reference), in);
}

constexpr double kAlphas[] = {1.5, 2, 0, 1.2};

}  // namespace

TEST_CASE("fused entmax equals its definition, with gradients, for any power, shape and mask") {
  const PoisonedMemory poisoned;
  const std::vector<EntmaxCase> cases = {
      {1, 1, 1, 1, 1, 1},
      {2, 2, 7, 7, 4, 4, 0.3},
      {2, 3, 64, 256, 8, 8, 0.1, false, true},
      {3, 2, 65, 257, 8, 5, 0.1, false, true, true},
      {2, 2, 300, 300, 16, 16, 0, true},
      {3, 1, 301, 301, 8, 8, 0.2, true, true},
      {3, 1, 130, 130, 8, 8, 0.2, true, true, true},
      {2, 2, 30, 513, 8, 16, 0.1, false, true, true},
      {2, 1, 5, 300, 8, 8, 0, true},
      {1, 2, 9, 5000, 4, 4, 0.5},
  };
  for (const EntmaxCase& one : cases)
    for (const double alpha : kAlphas) {
      CAPTURE(one.n, one.m, one.dropout, one.causal, one.masked, one.holes, alpha);
      CHECK(difference_of(one, alpha, at::kDouble) < 1e-9);
      // Of one key everything cancels but rounding.
      CHECK(difference_of(one, alpha, at::kFloat) < (one.m == 1 ? 1e-3 : 2e-4));
    }
}

TEST_CASE("fused entmax: scores that are nearly equal, and those that leave one key") {
  for (const double alpha : kAlphas)
    for (const double spread : {0.01, 30.0}) {
      CAPTURE(alpha, spread);
      CHECK(difference_of({2, 2, 40, 700, 8, 8, 0, false, false, false, spread}, alpha, at::kDouble) < 1e-9);
    }
}

TEST_CASE("rows of fused entmax sum to 1 in float, and to nothing without a key") {
  for (const double alpha : {1.01, 1.3, 1.5, 1.9, 2.0})
    for (const double spread : {0.01, 1.0, 30.0}) {
      CAPTURE(alpha, spread);
      const EntmaxCase one{3, 2, 20, 1000, 16, 1, 0, false, true};
      const at::Tensor q = random_tensor("q", {3, 2, 20, 16}, at::kFloat) * spread,
                       k = random_tensor("k", {3, 2, 1000, 16}, at::kFloat);
      const at::Tensor sums = entmax_attention(q, k, at::ones({3, 2, 1000, 1}), {}, options_of(one, alpha));
      CHECK((sums[0] - 1).abs().max().item<float>() < 1e-5);
      CHECK(sums[2].abs().max().item<float>() == 0);
    }
}

TEST_CASE("fused entmax deals the rows of few heads out to many threads") {
  const int before = at::get_num_threads();
  for (const int threads : {1, 5}) {
    at::set_num_threads(threads);
    for (const double alpha : {1.5, 0.0}) {
      CHECK(difference_of({1, 1, 700, 900, 8, 8, 0.1, false, true}, alpha, at::kDouble) < 1e-9);
      CHECK(difference_of({1, 1, 600, 600, 4, 4, 0.1, true}, alpha, at::kDouble) < 1e-9);
    }
  }
  at::set_num_threads(before);
}

TEST_CASE("fused entmax takes views as they lie, and lays its result out for an output projection") {
  const at::Tensor packed = random_tensor("packed", {2, 40, 3, 3, 8});  // [b, n, h, 3, d]
  const auto part = [&](int64_t which) { return packed.select(3, which).transpose(1, 2); };
  EntmaxAttentionOptions options;
  options.alpha = 1.5;
  const at::Tensor got = entmax_attention(part(0), part(1), part(2), {}, options);
  CHECK(difference(got, entmax_attention_reference(part(0), part(1), part(2), {}, options)) < 1e-12);
  CHECK(got.transpose(1, 2).is_contiguous());
}

TEST_CASE("fused entmax keeps no weights: its memory grows with the length, not with its square") {
  const auto peak = [](int64_t n) {
    const at::Tensor x = random_tensor("x", {1, 2, n, 16}, at::kFloat).requires_grad_(true);
    EntmaxAttentionOptions options;
    options.alpha = 1.5;
    reset_host_peak();
    const int64_t before = host_memory().live_bytes;
    entmax_attention(x, x, x, {}, options).sum().backward();
    return host_memory().peak_bytes - before;
  };
  install_caching_allocator();
  const int64_t shorter = peak(1024), longer = peak(4096);
  CHECK(longer <= 5 * shorter);
  CHECK(longer < 2 * 4096 * 4096);
}

TEST_CASE("fused entmax: NaN in a query or a key comes out as NaN, and nothing of padding comes out") {
  for (const double alpha : {1.5, 2.0, 1.3}) {
    CAPTURE(alpha);
    EntmaxAttentionOptions options;
    options.alpha = alpha;
    const at::Tensor k = random_tensor("k", {1, 1, 300, 4}, at::kFloat);
    at::Tensor q = random_tensor("q", {1, 1, 5, 4}, at::kFloat);
    q[0][0][2][1] = NAN;
    const at::Tensor rows = entmax_attention(q, k, k, {}, options).isnan().any(-1).view({5});
    CHECK(rows.sum().item<int64_t>() == 1);
    CHECK(rows[2].item<bool>());

    q[0][0][2][1] = 1;
    at::Tensor lost = k.clone();
    lost[0][0][7][0] = NAN;
    CHECK(entmax_attention(q, lost, k, {}, options).isnan().all().item<bool>());

    options.rows.mask.key_valid = at::ones({1, 300}, at::kBool);
    options.rows.mask.key_valid.narrow(1, 200, 100).fill_(false);
    const at::Tensor clean = entmax_attention(q, k, k, {}, options);
    lost = k.clone();
    lost.narrow(2, 200, 100).fill_(NAN);
    CHECK(at::equal(entmax_attention(q, lost, lost, {}, options), clean));
  }
}

TEST_CASE("fused entmax: a sample whose gradient is NaN leaves the next one's as they are") {
  const int before = at::get_num_threads();
  at::set_num_threads(1);  // so that both go through the same memory
  for (const double alpha : {1.5, 1.3}) {
    CAPTURE(alpha);
    EntmaxAttentionOptions options;
    options.alpha = alpha;
    options.rows.mask.key_valid = at::ones({2, 300}, at::kBool);
    options.rows.mask.key_valid[1].narrow(0, 261, 39).fill_(false);  // in the middle of a vector's lanes
    const auto heads = [](const char* name, int64_t rows) {
      return random_tensor(name, {2, 1, rows, 4}, at::kFloat).requires_grad_(true);
    };
    const Tensors in{heads("q", 20), heads("k", 300), heads("v", 300)};
    at::Tensor gradient = random_tensor("gradient", {2, 1, 20, 4}, at::kFloat);
    const auto found = [&] {
      return torch::autograd::grad({entmax_attention(in[0], in[1], in[2], {}, options)}, in, {gradient});
    };
    const Tensors clean = found();
    gradient[0].fill_(NAN);
    const Tensors lost = found();
    for (size_t i = 0; i < in.size(); ++i) {
      CHECK(lost[i][0].isnan().any().item<bool>());
      CHECK(at::equal(lost[i][1], clean[i][1]));
    }
  }
  at::set_num_threads(before);
}

TEST_CASE("fused entmax in bf16 is within its roundings of the definition in float") {
  for (const double alpha : kAlphas) {
    CAPTURE(alpha);
    const EntmaxCase one{2, 2, 70, 300, 16, 16, 0.1, false, true};
    const EntmaxAttentionOptions options = options_of(one, alpha);
    const auto stored = [](const char* name, at::IntArrayRef shape) {
      return random_tensor(name, shape, at::kFloat).to(at::kBFloat16);
    };
    const Tensors in{stored("q", {2, 2, 70, 16}), stored("k", {2, 2, 300, 16}), stored("v", {2, 2, 300, 16})};
    const at::Tensor learned = alpha == 0 ? at::tensor({1.05F, 1.7F}) : at::Tensor();
    const auto run = [&](const auto& made, at::ScalarType type) {
      Tensors leaves;
      for (const at::Tensor& x : in) leaves.push_back(x.to(type, false, /*copy=*/true).requires_grad_(true));
      if (learned.defined()) leaves.push_back(learned.detach().clone().requires_grad_(true));
      const at::Tensor out =
          made(leaves[0], leaves[1], leaves[2], learned.defined() ? leaves[3] : at::Tensor(), options);
      const at::Tensor gradient = random_tensor("gradient", out.sizes(), at::kFloat).to(out.scalar_type());
      Tensors result = torch::autograd::grad({out}, leaves, {gradient});
      result.insert(result.begin(), out.detach());
      return result;
    };
    const Tensors got = run(entmax_attention, at::kBFloat16), meant = run(entmax_attention_reference, at::kFloat);
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i].scalar_type() == (i == 4 ? at::kFloat : at::kBFloat16));
      CHECK(difference(got[i].to(at::kFloat), meant[i]) < kBf16Tolerance);
    }
  }
}

}  // namespace xformer::kernels::entmax_attention_test
