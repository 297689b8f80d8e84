// Spans against the definition, written with loops.
#include "analysis/attention_span.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>

namespace xformer::analysis {

namespace {

LayerTensors tensors_of(int64_t sequences, int64_t heads, int64_t n, int64_t d) {
  const auto numbers = [&](double shift) {
    return at::arange(static_cast<double>(sequences * heads * n * d), at::kDouble)
        .mul(0.7)
        .add(shift)
        .sin()
        .reshape({sequences, heads, n, d})
        .to(at::kFloat);
  };
  return {numbers(0), numbers(1), {}, {}, at::ones({sequences, n}, at::kBool), 0};
}

// sum_i sum_j A_ij |i - j| over valid places, divided by the valid queries.
double by_definition(const LayerTensors& tensors, int64_t sequence, int64_t head, int64_t first) {
  const int64_t n = tensors.q.size(2), d = tensors.q.size(3);
  const auto q = tensors.q.accessor<float, 4>(), k = tensors.k.accessor<float, 4>();
  const auto valid = tensors.valid.accessor<bool, 2>();
  double sum = 0, queries = 0;
  for (int64_t i = first; i < n; ++i) {
    if (!valid[sequence][i]) continue;
    double weighted = 0, norm = 0;
    for (int64_t j = first; j < n; ++j) {
      if (!valid[sequence][j]) continue;
      double score = 0;
      for (int64_t c = 0; c < d; ++c) score += double{q[sequence][head][i][c]} * double{k[sequence][head][j][c]};
      const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
      weighted += weight * static_cast<double>(std::abs(i - j));
      norm += weight;
    }
    sum += weighted / norm;
    ++queries;
  }
  return sum / queries;
}

}  // namespace

TEST_CASE("a span is the mean distance under the weights, over blocks of queries as over all") {
  const int64_t n = GENERATE(5, 128, 300);
  LayerTensors tensors = tensors_of(2, 3, n, 4);
  tensors.valid[1].narrow(0, n - 2, 2).fill_(false);
  for (const int64_t first : {int64_t{0}, int64_t{1}}) {
    const at::Tensor found = spans(tensors, first);
    for (int64_t sequence = 0; sequence < 2; ++sequence)
      for (int64_t head = 0; head < 3; ++head)
        CHECK(found[sequence][head].item<double>() ==
              Approx(by_definition(tensors, sequence, head, first)).epsilon(1e-6));
  }
}

TEST_CASE("uniform weights reach (n^2 - 1) / (3 n), weights on oneself nowhere") {
  LayerTensors tensors = tensors_of(1, 1, 64, 64);
  tensors.q.zero_();
  CHECK(spans(tensors, 0).item<double>() == Approx((64.0 * 64 - 1) / (3 * 64)));
  tensors.q = at::eye(64).mul(1e4).reshape({1, 1, 64, 64});
  tensors.k = at::eye(64).reshape({1, 1, 64, 64});
  CHECK(spans(tensors, 0).item<double>() == Approx(0).margin(1e-9));
}

}  // namespace xformer::analysis
