// paramixer-chord and paramixer-cdil (attention-more 1).
#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::paramixer_test {

using namespace support;

// Links of row i in factor m, by the paper's definition.
std::vector<int64_t> links_of(const std::string& name, int64_t i, int64_t m, int64_t links, int64_t n) {
  std::vector<int64_t> result{i};
  if (name == "paramixer-chord") {
    for (int64_t p = 1; p < links; ++p) result.push_back((i + (int64_t{1} << (p - 1))) % n);
    return result;
  }
  const int64_t step = int64_t{1} << m;
  for (int64_t k = 1; k <= links / 2; ++k) result.push_back((i + k * step) % n);
  for (int64_t k = 1; k <= links / 2; ++k) result.push_back(((i - k * step) % n + n) % n);
  return result;
}

at::Tensor two_maps(const BuiltMixer& block, const std::string& name, const at::Tensor& x) {
  const auto parameters = block.module->named_parameters();
  const auto map = [&](const std::string& part, const at::Tensor& rows) {
    return at::matmul(rows, parameters[name + part + ".weight"].t()) + parameters[name + part + ".bias"];
  };
  const at::Tensor hidden = map(".in", x);
  return map(".out", hidden * 0.5 * (1 + at::erf(hidden / std::sqrt(2.0))));
}

// One sample x [n,m] with X0 [n,m], by dense matrices.
at::Tensor reference(const BuiltMixer& block, const std::string& name, const at::Tensor& x, const at::Tensor& first,
                     int64_t factors, int64_t links, bool in_factor, const std::vector<bool>& valid) {
  const int64_t n = x.size(0);
  at::Tensor keep = at::zeros({n, 1}, at::kDouble);
  for (int64_t i = 0; i < n; ++i) keep[i] = valid[static_cast<size_t>(i)] ? 1.0 : 0.0;
  at::Tensor v = two_maps(block, "value", x) * keep;
  const at::Tensor before = v;
  for (int64_t m = 0; m < factors; ++m) {
    const at::Tensor weights = two_maps(block, "factor" + std::to_string(m), first);  // [n,P]
    at::Tensor dense = in_factor ? at::eye(n, at::kDouble) : at::zeros({n, n}, at::kDouble);
    for (int64_t i = 0; i < n; ++i) {
      const std::vector<int64_t> there = links_of(name, i, m, links, n);
      for (size_t p = 0; p < there.size(); ++p) dense[i][there[p]] += weights[i][static_cast<int64_t>(p)];
    }
    v = at::matmul(dense, v) * keep;
  }
  return in_factor ? v : v + before;
}

TEST_CASE("paramixer equals products with dense matrices, at any length, with holes, in both places of the residual") {
  const at::NoGradGuard no_grad;
  for (const std::string name : {"paramixer-chord", "paramixer-cdil"})
    for (const char* residual : {"factor", "block"})
      for (const auto& [links, factors] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {3, 2}, {5, 7}})
        for (const int64_t n : {48, 31, 8, 2, 1}) {
          INFO(name << " " << residual << " links " << links << " factors " << factors << " n " << n);
          const int64_t own_links = name == "paramixer-cdil" && links == 0 ? 9 : links;
          const BuiltMixer block =
              make_mixer(name, {{"residual", residual}, {"links", own_links}, {"factors", factors}, {"hidden", 7}});
          const int64_t used_factors = factors == 0 ? 6 : factors;  // of 48 tokens
          const int64_t used_links = own_links == 0 ? used_factors + 1 : own_links;
          const at::Tensor x = random_tensor("x", {2, n, 10});
          SequenceMask mask = length_mask({n, n}, n);
          for (int64_t i = 1; i < n; i += 3) mask.key_valid[1][i] = false;
          const at::Tensor out = block(x, mask);
          for (int64_t b = 0; b < 2; ++b) {
            std::vector<bool> valid;
            for (int64_t i = 0; i < n; ++i) valid.push_back(mask.key_valid[b][i].item<bool>());
            CHECK(max_difference(out[b], reference(block, name, x[b], x[b], used_factors, used_links,
                                                   std::string(residual) == "factor", valid)) < 1e-10);
          }
        }
}

TEST_CASE("weights of paramixer's links come from the first layer's input in every layer") {
  const at::NoGradGuard no_grad;
  const BuiltMixer first = make_mixer("paramixer-chord"), second = make_mixer("paramixer-chord", {}, {.layer = 1});
  const at::Tensor x = random_tensor("x", {1, 12, 10});
  Carry carry;
  const at::Tensor middle = first.module->forward(x, {}, carry), out = second.module->forward(middle, {}, carry);
  const std::vector<bool> valid(12, true);
  CHECK(max_difference(middle[0], reference(first, "paramixer-chord", x[0], x[0], 6, 7, true, valid)) < 1e-10);
  CHECK(max_difference(out[0], reference(second, "paramixer-chord", middle[0], x[0], 6, 7, true, valid)) < 1e-10);
}

TEST_CASE("paramixer without weights is the map of its values") {
  const at::NoGradGuard no_grad;
  for (const std::string name : {"paramixer-chord", "paramixer-cdil"}) {
    const BuiltMixer block = make_mixer(name);
    for (const auto& item : block.module->named_parameters())
      if (item.key().starts_with("factor") && item.key().find(".out.") != std::string::npos)
        item.value().data().zero_();
    const at::Tensor x = random_tensor("x", {2, 20, 10});
    CHECK(max_difference(block(x), two_maps(block, "value", x)) < 1e-12);
  }
}

// Which offsets from a row one layer reads.
int64_t reached(const std::string& name, int64_t n, int64_t links, int64_t factors) {
  std::vector<bool> seen(static_cast<size_t>(n), false);
  seen[0] = true;
  for (int64_t m = 0; m < factors; ++m) {
    std::vector<bool> next = seen;
    for (int64_t i = 0; i < n; ++i)
      if (seen[static_cast<size_t>(i)])
        for (const int64_t j : links_of(name, i, m, links, n)) next[static_cast<size_t>(j)] = true;
    seen = next;
  }
  return std::count(seen.begin(), seen.end(), true);
}

// The same of the layer itself: which inputs of row 0 have a gradient.
int64_t reached_by(const BuiltMixer& block, int64_t n) {
  // Values as they are: what counts is where they go. Weights come from X0, which is another tensor.
  Carry carry{{"paramixer/x0", random_tensor("x0", {1, n, 10})}};
  const at::Tensor x = random_tensor("x", {1, n, 10}).requires_grad_(true);
  block.module->forward(x, {}, carry)[0][0].sum().backward();
  return x.grad()[0].abs().amax(-1).gt(0).sum().item<int64_t>();
}

TEST_CASE("one layer of paramixer reads all places, with the paper's log2 n links all but one") {
  for (const int64_t n : {4, 16, 64, 48, 33}) {
    INFO("n " << n);
    const Setup setup{.max_len = n};
    for (const std::string name : {"paramixer-chord", "paramixer-cdil"})
      CHECK(reached_by(make_mixer(name, {}, setup), n) == n);
    if ((n & (n - 1)) != 0) continue;
    const int64_t log = std::lround(std::log2(n));
    const BuiltMixer fewer = make_mixer("paramixer-chord", {{"links", log}, {"factors", log}}, setup);
    CHECK(reached_by(fewer, n) == n - 1);
    // One factor fewer leaves holes for chord; dilated links need log2 n, with five one fewer, with nine two fewer.
    CHECK(reached("paramixer-chord", n, log + 1, log) == n);
    CHECK(reached("paramixer-chord", n, log + 1, log - 1) < n);
    CHECK(reached("paramixer-cdil", n, 3, log) == n);
    CHECK(reached("paramixer-cdil", n, 5, log - 1) == n);
    if (n >= 16) CHECK(reached("paramixer-cdil", n, 9, log - 2) == n);
  }
  // The code's floor(log2 n) factors at 2000 places.
  CHECK(reached("paramixer-chord", 2000, 11, 10) == 1996);
  CHECK(reached("paramixer-chord", 2000, 12, 11) == 2000);
}

TEST_CASE("the matrix of chord links has full rank, unlike that of the polynomial which the supplement prints") {
  const auto rank = [](int64_t n, const std::vector<int64_t>& steps) {
    at::Tensor matrix = at::zeros({n, n}, at::kDouble);
    for (int64_t i = 0; i < n; ++i)
      for (const int64_t step : steps) matrix[i][(i + step) % n] += 1;
    return at::linalg_svdvals(matrix).gt(1e-8).sum().item<int64_t>();
  };
  const std::map<int64_t, int64_t> printed{{4, 3}, {16, 13}, {64, 63}, {256, 249}};
  for (const int64_t log : {2, 3, 4, 5, 6, 7, 8}) {
    const int64_t n = int64_t{1} << log;
    INFO("n " << n);
    // As the layer links them: 0, 1, 2, 4, ... n / 2.
    CHECK(rank(n, links_of("paramixer-chord", 0, 0, log + 1, n)) == n);
    std::vector<int64_t> polynomial;  // x^0 + x^1 + ... + x^(log n - 1)
    for (int64_t k = 0; k < log; ++k) polynomial.push_back(k);
    if (printed.count(n) == 1) CHECK(rank(n, polynomial) == printed.at(n));
  }
}

TEST_CASE("paramixer knows no places: rolled input gives rolled output") {
  for (const std::string name : {"paramixer-chord", "paramixer-cdil"}) {
    const BuiltMixer block = make_mixer(name);
    const at::Tensor x = random_tensor("x", {2, 29, 10}), out = block(x);
    for (const int64_t by : {1, 7, 28}) CHECK(max_difference(block(x.roll(by, 1)), out.roll(by, 1)) < 1e-12);
  }
}

TEST_CASE("paramixer has the parameters and products of its formulas") {
  const auto numbers = [](const BuiltMixer& block) {
    int64_t result = 0;
    for (const auto& [name, tensor] : block.parameters()) result += tensor.numel();
    return result;
  };
  const Setup wide{.heads = 2, .head_dim = 32, .max_len = 2048};
  CHECK(numbers(make_mixer("paramixer-chord", {}, wide)) == 31428);
  CHECK(numbers(make_mixer("paramixer-chord", {{"hidden", 128}}, wide)) == 125124);
  constexpr double kWidth = 10, kHidden = 32, kFactors = 6, kLinks = 9, kTokens = 30;
  const BuiltMixer block = make_mixer("paramixer-cdil");
  CHECK(static_cast<double>(numbers(block)) ==
        2 * kWidth * kHidden + kHidden + kWidth + kFactors * (kWidth * kHidden + kHidden + kHidden * kLinks + kLinks));
  CHECK(block.module->cost(1, 30).flops_executed ==
        4 * kTokens * kWidth * kHidden + kFactors * (2 * kTokens * kWidth * kHidden + 2 * kTokens * kHidden * kLinks +
                                                     2 * kTokens * kLinks * kWidth));
}

TEST_CASE("with mask_pads=false paramixer reads padding as the published code does") {
  for (const bool masked : {true, false}) {
    const BuiltMixer block = make_mixer("paramixer-chord", {{"mask_pads", masked}});
    const at::Tensor x = random_tensor("x", {1, 16, 10});
    const at::Tensor changed = at::cat({x.narrow(1, 0, 12), x.narrow(1, 12, 4) * 3}, 1);
    const SequenceMask mask = length_mask({12}, 16);
    const double change = max_difference(block(x, mask).narrow(1, 0, 12), block(changed, mask).narrow(1, 0, 12));
    if (masked) CHECK(change == 0);
    else CHECK(change > 1e-3);
  }
}

TEST_CASE("paramixer refuses causality and links that it cannot lay") {
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(make_mixer("paramixer-chord", {}, {.causal = true}), Contains("no causal form"));
  CHECK_THROWS_WITH(make_mixer("paramixer-cdil", {{"links", 4}}), Contains("odd number, got 4"));
  CHECK_THROWS_WITH(make_mixer("paramixer-cdil", {{"links", 0}}), Contains("odd number, got 0"));
  CHECK_THROWS_WITH(make_mixer("paramixer-chord", {{"links", 42}}), Contains("at most 41"));
}

}  // namespace xformer::attention::paramixer_test
