// linear (attention-core 3.11).
#include "attention/support.h"

namespace xformer::attention::linear_test {

using namespace support;

double phi(double x) { return x > 0 ? x + 1 : std::exp(x); }  // elu + 1

// The n x n kernel matrix in loops.
at::Tensor reference(const Inputs& in, const SequenceMask& mask, bool by_sum = true) {
  const auto q = in.q.accessor<double, 4>(), k = in.k.accessor<double, 4>();
  const int64_t d = in.q.size(3);
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += phi(q[b][h][i][c]) * phi(k[b][h][j][c]);
    return sum;
  };
  if (by_sum) return dense_attention(in.v, mask, in.q.size(2), weight, 1e-6);
  // Without the sum: weights over root n.
  at::Tensor out = at::zeros_like(in.q);
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h)
      for (int64_t i = 0; i < in.q.size(2); ++i)
        for (int64_t j = 0; j < in.k.size(2); ++j) {
          if (mask.causal && j > i) continue;
          if (!mask.all_valid() && !mask.key_valid[b][j].item<bool>()) continue;
          out[b][h][i] += weight(b, h, i, j) * in.v[b][h][j] / std::sqrt(static_cast<double>(in.k.size(2)));
        }
  return out;
}

TEST_CASE("linear equals the explicit kernel matrix, for ragged lengths and length 1") {
  for (const bool causal : {false, true})
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{48, 31}, {1, 48}}) {
      INFO("causal " << causal);
      const SequenceMask mask = length_mask(lengths, 48, causal);
      const Inputs in = random_inputs(2, 2, 48, 5);
      const BuiltCore core = make_core("linear", {}, {.causal = causal});
      CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(reference(in, mask), mask)) < 1e-10);
      const Inputs one = random_inputs(2, 2, 1, 5);
      CHECK(max_difference(core(one.q, one.k, one.v, {{}, causal}), reference(one, {{}, causal})) < 1e-10);
    }
}

TEST_CASE("linear divided by root n equals its own sum") {
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({12, 7}, 12, causal);
    const Inputs in = random_inputs(2, 2, 12, 5);
    const BuiltCore core = make_core("linear", {{"norm", "sqrt-n"}}, {.causal = causal});
    CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(reference(in, mask, false), mask)) < 1e-10);
  }
}

TEST_CASE("linear causal sums go on over chunks") {
  for (const int64_t n : {63, 64, 65, 150, 256}) {
    const Inputs in = random_inputs(1, 1, n, 3);
    const SequenceMask mask = length_mask({n - 10}, n, true);
    const at::Tensor out = make_core("linear", {}, {.heads = 1, .head_dim = 3, .causal = true})(in.q, in.k, in.v, mask);
    CHECK(max_difference(out, valid_rows(reference(in, mask), mask)) < 1e-10);
  }
}

TEST_CASE("linear golden numbers") {
  // phi(0) = 1 and phi(1) = 2: weights 1 and 2 whatever the query: (1 * 1 + 2 * 4) / 3 = 3, less the epsilon 1e-6.
  const BuiltCore core = make_core("linear", {}, {.heads = 1, .head_dim = 1});
  const at::Tensor out = core(column({0, -1}), column({0, 1}), column({1, 4}));
  CHECK(out[0][0][0][0].item<double>() == Approx(9 / (3 + 1e-6)).epsilon(1e-12));
  // phi(-1) = 1/e: the epsilon weighs e times as much.
  CHECK(out[0][0][1][0].item<double>() == Approx(9 / (3 + 1e-6 * std::exp(1.0))).epsilon(1e-12));
  // phi(1) = 2: (2 * 1 * 1 + 2 * 2 * 4) / sqrt(2) = 18 / sqrt(2).
  const BuiltCore plain = make_core("linear", {{"norm", "sqrt_n"}}, {.heads = 1, .head_dim = 1});
  CHECK(plain(column({1, 1}), column({0, 1}), column({1, 4}))[0][0][0][0].item<double>() ==
        Approx(18 / std::sqrt(2.0)));
}

}  // namespace xformer::attention::linear_test
