// adaptively-sparse, entmax15 and sparsemax (attention-third 9).
#include <algorithm>
#include <numeric>

#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::entmax_test {

using namespace support;

// The exact solutions by sorting for alpha 1.5 and 2, by bisection for others; `scores` not empty.
std::vector<double> entmax_of(const std::vector<double>& scores, double alpha) {
  const double top = *std::max_element(scores.begin(), scores.end()), b = alpha - 1;
  std::vector<double> x;
  for (const double score : scores) x.push_back((score - top) * b);
  const auto powers = [&](double tau) {
    std::vector<double> p;
    for (const double one : x) p.push_back(one > tau ? std::pow(one - tau, 1 / b) : 0);
    return p;
  };
  std::vector<double> sorted = x;
  std::sort(sorted.rbegin(), sorted.rend());
  double tau = 0;
  if (alpha == 1.5) {
    double sum = 0, squares = 0;
    int64_t support = 0;
    std::vector<double> taus;
    for (size_t r = 1; r <= sorted.size(); ++r) {
      const double count = static_cast<double>(r);
      sum += sorted[r - 1], squares += sorted[r - 1] * sorted[r - 1];
      const double mean = sum / count, deviations = squares - count * mean * mean;
      taus.push_back(mean - std::sqrt(std::max((1 - deviations) / count, 0.0)));
      support += taus.back() <= sorted[r - 1];
    }
    tau = taus[static_cast<size_t>(support - 1)];
  } else if (alpha == 2) {
    double sum = 0;
    for (size_t r = 1; r <= sorted.size(); ++r) {
      sum += sorted[r - 1];
      if (static_cast<double>(r) * sorted[r - 1] > sum - 1) tau = (sum - 1) / static_cast<double>(r);
    }
  } else {
    double low = -1, high = 0;  // where the powers sum to at least 1, and to less
    for (int step = 0; step < 200; ++step) {
      tau = (low + high) / 2;
      const std::vector<double> p = powers(tau);
      (std::accumulate(p.begin(), p.end(), 0.0) >= 1 ? low : high) = tau;
    }
  }
  std::vector<double> p = powers(tau);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& one : p) one /= sum;
  return p;
}

at::Tensor reference(const Inputs& in, const SequenceMask& mask, const std::vector<double>& alpha_of_heads) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return valid_rows(dense_attention(in.v, mask, in.q.size(2),
                                    [&](int64_t b, int64_t h, int64_t i, int64_t j) {
                                      std::vector<double> row;
                                      size_t place = 0;
                                      for (int64_t other = 0; other < in.k.size(2); ++other) {
                                        if (mask.causal && other > i) continue;
                                        if (!mask.all_valid() && !mask.key_valid[b][other].item<bool>()) continue;
                                        if (other == j) place = row.size();
                                        row.push_back(s[b][h][i][other]);
                                      }
                                      return entmax_of(row, alpha_of_heads[static_cast<size_t>(h)])[place];
                                    }),
                    mask);
}

at::Tensor captured(const BuiltCore& core, const Inputs& in, const std::string& wanted) {
  const ProbeRecorder recorder([&](const std::string& name) { return name == wanted; });
  (void)core(in.q, in.k, in.v);
  return recorder.kept().front().second.detach();
}

TEST_CASE("entmax attention equals the exact solution of its definition, for ragged lengths and length 1") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 2, 19})
      for (const double alpha : {1.01, 1.3, 1.5, 2.0}) {
        INFO("causal " << causal << " n " << n << " alpha " << alpha);
        Inputs in = random_inputs(2, 2, n, 5);
        in.q = in.q * 2;
        const Json options{{"alpha", alpha}, {"learn_alpha", false}};
        const BuiltCore core = make_core("adaptively-sparse", options, {.causal = causal});
        const std::string name = alpha == 1.5 ? "entmax15" : alpha == 2 ? "sparsemax" : "adaptively-sparse";
        const BuiltCore same = make_core(name, options, {.causal = causal});
        for (const SequenceMask& mask : ragged_masks(n, causal)) {
          const at::Tensor meant = reference(in, mask, {alpha, alpha});
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), meant) < 1e-10);
          CHECK(max_difference(valid_rows(same(in.q, in.k, in.v, mask), mask), meant) < 1e-10);
        }
      }
}

TEST_CASE("adaptively-sparse has an alpha for each head, from its logit, within its bounds") {
  const BuiltCore core = make_core("adaptively-sparse");
  const at::Tensor logit = core.module->named_parameters()["alpha_logit"];
  logit.data().copy_(at::tensor({-20.0, 0.4}, at::kDouble));
  const double second = 1 + 1 / (1 + std::exp(-0.4));
  const Inputs in = random_inputs(2, 2, 15, 5);
  CHECK(max_difference(captured(core, in, "alpha"), at::tensor({1.01, second}, at::kDouble)) < 1e-12);
  CHECK(max_difference(core(in.q, in.k, in.v), reference(in, {}, {1.01, second})) < 1e-10);
  // Beyond the bound there is nothing to learn.
  core(in.q, in.k, in.v).square().sum().backward();
  CHECK(logit.grad()[0].item<double>() == 0);
  CHECK(std::abs(logit.grad()[1].item<double>()) > 1e-6);
}

TEST_CASE("rows of entmax sum to 1, do not mind a constant, and lose keys as alpha and scores grow") {
  Inputs in = random_inputs(1, 2, 40, 5);
  double fewest = 41;
  for (const double alpha : {1.2, 1.5, 2.0}) {
    const BuiltCore core = make_core("adaptively-sparse", {{"alpha", alpha}, {"learn_alpha", false}});
    const at::Tensor weights = captured(core, in, "weights");
    CHECK(max_difference(weights.sum(-1), at::ones({1, 2, 40}, at::kDouble)) < 1e-12);
    const Inputs shifted{in.q, in.k + 3, in.v};
    CHECK(max_difference(captured(core, shifted, "weights"), weights) < 1e-10);
    const double support = captured(core, in, "support").to(at::kDouble).mean().item<double>();
    CHECK(support < fewest);
    fewest = support;
    const Inputs sharp{in.q * 50, in.k, in.v}, flat{in.q * 0, in.k, in.v};
    CHECK(captured(core, sharp, "support").to(at::kDouble).mean().item<double>() < 2);
    CHECK(max_difference(captured(core, flat, "weights"), at::full({1, 2, 40, 40}, 1.0 / 40, at::kDouble)) < 1e-12);
  }
}

TEST_CASE("of scores that are far apart adaptively-sparse keeps the best one, as explicit-sparse with one key does") {
  const Inputs in = random_inputs(1, 2, 8, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask{{}, causal};
    const at::Tensor best = make_core("explicit-sparse", {{"top_k", 1}}, {.causal = causal})(in.q, in.k, in.v, mask);
    CHECK(max_difference(make_core("adaptively-sparse", {}, {.causal = causal})(in.q * 1e6, in.k, in.v, mask), best) <
          1e-10);
  }
}

TEST_CASE("entmax near 1 is nearly softmax, and a learned alpha moves") {
  const Inputs in = random_inputs(2, 2, 30, 5);
  const BuiltCore near = make_core("adaptively-sparse", {{"alpha", 1.0001}, {"learn_alpha", false}});
  const double apart = max_difference(near(in.q, in.k, in.v), dense_softmax(in));
  CHECK((apart > 1e-7 && apart < 1e-3));

  const BuiltCore core = make_core("adaptively-sparse");
  const at::Tensor logit = core.module->named_parameters()["alpha_logit"], before = logit.detach().clone();
  // Sharper is better here: the value of the best key is wanted.
  const at::Tensor best = make_core("explicit-sparse", {{"top_k", 1}})(in.q, in.k, in.v);
  for (int step = 0; step < 20; ++step) {
    if (logit.grad().defined()) logit.mutable_grad().zero_();
    (core(in.q, in.k, in.v) - best).square().mean().backward();
    logit.data().sub_(logit.grad(), 2);
  }
  CHECK((logit - before).min().item<double>() > 0.01);
}

TEST_CASE("adaptively-sparse has one parameter a head; an alpha without a logit is refused where it is learned") {
  CHECK(parameters_of("adaptively-sparse") == 16642);
  CHECK(parameters_of("entmax15") == 16640);
  CHECK(parameters_of("sparsemax") == 16640);
  for (const double alpha : {1.0, 2.0})
    CHECK_THROWS_WITH(make_core("adaptively-sparse", {{"alpha", alpha}}), Catch::Matchers::Contains("learn_alpha"));
}

TEST_CASE("one kept key is explicit-sparse's and sharp entmax's answer alike") {
  Inputs in = random_inputs(2, 2, 25, 5);
  const at::Tensor one = make_core("explicit-sparse", {{"top_k", 1}})(in.q, in.k, in.v);
  in.q = in.q * 1e6;
  CHECK(max_difference(make_core("sparsemax")(in.q, in.k, in.v), one) < 1e-10);
}

}  // namespace xformer::attention::entmax_test
