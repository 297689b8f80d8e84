// combiner-fixed and combiner-logsparse (attention-more 2).
#include <torch/csrc/autograd/autograd.h>

#include "attention/combiner_support.h"

namespace xformer::attention::combiner_test {

using namespace support;

std::vector<int64_t> range(int64_t from, int64_t to) {
  std::vector<int64_t> result(static_cast<size_t>(std::max<int64_t>(0, to - from)));
  std::iota(result.begin(), result.end(), from);
  return result;
}

Pattern fixed(int64_t n, int64_t span, bool causal) {
  return [=](int64_t, int64_t, int64_t i) {
    const int64_t a = i / span;
    Supports result{range(a * span, causal ? i + 1 : std::min(n, (a + 1) * span)), {}};
    for (int64_t r = 0; r * span < n; ++r)
      if (causal ? r < a : r != a) result.sets.push_back(range(r * span, std::min(n, (r + 1) * span)));
    return result;
  };
}

Pattern logsparse(int64_t n, bool causal) {
  return [=](int64_t, int64_t, int64_t i) {
    Supports result{{i}, {}};
    for (int64_t level = 0; (int64_t{1} << level) < n; ++level) {
      const int64_t size = int64_t{1} << level, block = i / size;
      if (block % 2 == 1) result.sets.push_back(range((block - 1) * size, block * size));
      else if (!causal && (block + 1) * size < n)
        result.sets.push_back(range((block + 1) * size, std::min(n, (block + 2) * size)));
    }
    return result;
  };
}

struct Case {
  std::string name;
  Json options = Json::object();
  int64_t span = 4, pinned = 0;
  Combined how = {};

  [[nodiscard]] Pattern pattern(int64_t n, bool causal) const {
    const int64_t rest = n - std::min(pinned, n);
    return behind_pinned(std::min(pinned, n), n, causal,
                         name == "combiner-fixed" ? fixed(rest, span, causal) : logsparse(rest, causal));
  }
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const std::string name : {"combiner-fixed", "combiner-logsparse"}) {
    for (const char* pool : {"max", "mean", "sum", "relu"})
      for (const bool log_count : {false, true})
        result.push_back(
            {name, {{"block", 4}, {"pool", pool}, {"log_count_bias", log_count}}, 4, 0, {pool, log_count}});
    result.push_back({name, {{"block", 5}}, 5, 1});
    result.push_back({name, {{"block", 7}, {"log_count_bias", true}}, 7, 2, {"max", true}});
  }
  return result;
}

BuiltCore make(const Case& c, bool causal, int64_t max_len = 48) {
  return make_core(c.name, c.options, {.max_len = max_len, .pinned = c.pinned, .causal = causal});
}

TEST_CASE(
    "combiner-fixed and -logsparse equal their definition in loops, at any length, with holes and pinned tokens") {
  for (const Case& c : cases())
    for (const bool causal : {false, true})
      for (const int64_t n : {33, 17, 8, 3, 2, 1}) {
        INFO(c.name << " " << c.options.dump() << " pinned " << c.pinned << " causal " << causal << " n " << n);
        const BuiltCore core = make(c, causal);
        const Inputs in = random_inputs(2, 2, n, 5);
        for (const SequenceMask& mask : {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal),
                                         length_mask({1, n}, n, causal), holes(n, causal)})
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                               combined(in, mask, c.pattern(n, causal), c.how)) < 1e-10);
      }
}

TEST_CASE("pool=deepsets pools what a map and ReLU make of queries and keys") {
  for (const std::string name : {"combiner-fixed", "combiner-logsparse"}) {
    const BuiltCore core = make_core(name, {{"block", 4}, {"pool", "deepsets"}});
    const auto parameters = core.module->named_parameters();
    REQUIRE(parameters.size() == 2);
    const Inputs in = random_inputs(1, 1, 16, 5);
    // With weights so that W x = x, the map in front changes nothing.
    for (const auto& item : parameters) item.value().data().copy_(at::eye(5, at::kDouble));
    const Case relu{name, {{"block", 4}, {"pool", "relu"}}, 4, 0, {"relu", false}};
    CHECK(max_difference(core(in.q, in.k, in.v), combined(in, {}, relu.pattern(16, false), relu.how)) < 1e-10);
    for (const auto& item : parameters) item.value().data().mul_(2);
    CHECK(max_difference(core(in.q, in.k, in.v), combined(in, {}, relu.pattern(16, false), relu.how)) > 1e-3);
  }
}

// By the root of the mean square of what comes out and of gradients, relative to its own.
TEST_CASE("combiner-logsparse takes bf16 and does what it does in float, whatever it pools by, but for rounding") {
  std::vector<Case> all = cases();
  all.push_back({"combiner-logsparse", {{"pool", "deepsets"}, {"log_count_bias", true}}, 4, 1});
  for (const Case& c : all)
    for (const bool causal : {false, true}) {
      if (c.name != "combiner-logsparse") continue;
      INFO(c.options.dump() << " pinned " << c.pinned << " causal " << causal);
      const Setup setup{.head_dim = 8, .pinned = c.pinned, .causal = causal, .type = at::kFloat};
      const BuiltCore core = make_core(c.name, c.options, setup);
      REQUIRE(core.module->takes_bf16());
      const Inputs in = random_inputs(2, 2, 33, 8);
      const SequenceMask mask = length_mask({33, 20}, 33, causal);
      const auto run = [&](at::ScalarType type) {
        std::vector<at::Tensor> leaves, result;
        for (const at::Tensor& x : {in.q, in.k, in.v})
          leaves.push_back(x.to(at::kBFloat16).to(type).detach().requires_grad_(true));
        const at::Tensor out = core(leaves[0], leaves[1], leaves[2], mask);
        CHECK(out.scalar_type() == type);
        const at::Tensor slope = random_tensor("slope", out.sizes()).to(at::kBFloat16).to(type);
        result = torch::autograd::grad({valid_rows(out, mask)}, leaves, {slope});
        result.push_back(valid_rows(out, mask).detach());
        for (at::Tensor& one : result) one = one.to(at::kDouble);
        return result;
      };
      const std::vector<at::Tensor> low = run(at::kBFloat16), full = run(at::kFloat);
      for (size_t i = 0; i < low.size(); ++i)
        CHECK((low[i] - full[i]).norm().item<double>() < 0.05 * full[i].norm().item<double>());
    }
}

TEST_CASE("combiner's supports are disjoint and cover what a row may see") {
  for (const bool causal : {false, true})
    for (int64_t n = 1; n <= 40; ++n) {
      INFO("causal " << causal << " n " << n);
      CHECK(partitions(logsparse(n, causal), n, causal));
      for (const int64_t span : {1, 4, 7, 64}) CHECK(partitions(fixed(n, span, causal), n, causal));
    }
}

TEST_CASE("combiner-fixed with spans of one token or one span, and -logsparse of two tokens, are softmax attention") {
  for (const bool causal : {false, true}) {
    const auto same = [&](const std::string& name, int64_t span, int64_t n) {
      const Inputs in = random_inputs(2, 2, n, 5);
      const BuiltCore core = make_core(name, {{"block", span}}, {.causal = causal});
      const SequenceMask mask = length_mask({n, (n + 1) / 2}, n, causal);
      CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), valid_rows(dense_softmax(in, mask), mask)) <
            1e-10);
    };
    same("combiner-fixed", 1, 21);
    same("combiner-fixed", 21, 21);
    same("combiner-logsparse", 0, 2);
    same("combiner-logsparse", 0, 1);
  }
}

TEST_CASE("combiner's rows weigh one in all, and a set's tokens in the same proportions for all who read it") {
  constexpr int64_t kTokens = 16, kSpan = 4;
  for (const bool causal : {false, true}) {
    const Setup setup{.heads = 1, .head_dim = kTokens, .causal = causal};
    for (const std::string name : {"combiner-fixed", "combiner-logsparse"}) {
      const at::Tensor weights = effective_weights(make_core(name, {{"block", kSpan}}, setup), kTokens, causal);
      CHECK(max_difference(weights.sum(1), at::ones({kTokens}, at::kDouble)) < 1e-12);
      // Rows 12 to 15 read tokens 0 to 3 of combiner-fixed, and 0 to 7 of -logsparse, as one set.
      const at::Tensor part = weights.narrow(0, 12, 4).narrow(1, 0, name == "combiner-fixed" ? 4 : 8);
      CHECK(max_difference(part, at::matmul(part.narrow(1, 0, 1), part.narrow(0, 0, 1)) / part[0][0]) < 1e-12);
      CHECK(part.min().item<double>() > 0);
    }
  }
}

TEST_CASE(
    "with one key for each span combiner-fixed is softmax attention if it counts tokens, and else weighs them less") {
  constexpr int64_t kSpan = 4, kTokens = 16;
  Inputs in = random_inputs(1, 1, kTokens, 5);
  in.k = in.k.narrow(2, 0, kTokens / kSpan).repeat_interleave(kSpan, 2);
  const auto run = [&](bool log_count) {
    return make_core("combiner-fixed", {{"block", kSpan}, {"log_count_bias", log_count}})(in.q, in.k, in.v);
  };
  CHECK(max_difference(run(true), dense_softmax(in)) < 1e-12);
  CHECK(max_difference(run(false), dense_softmax(in)) > 1e-2);
  // Of row 0, the weight of the other spans beside its own is a fourth of softmax attention's.
  in.v = at::eye(kTokens, at::kDouble).expand({1, 1, kTokens, kTokens});
  const auto odds = [&](const at::Tensor& out) {
    const at::Tensor row = out[0][0][0];
    return row.narrow(0, kSpan, kTokens - kSpan).sum().item<double>() / row.narrow(0, 0, kSpan).sum().item<double>();
  };
  CHECK(odds(dense_softmax(in)) == Approx(4 * odds(run(false))));
}

TEST_CASE("with one key for each set combiner-logsparse weighs a set as many times less as it has tokens") {
  constexpr int64_t kTokens = 16;
  for (const bool causal : {false, true})
    for (const int64_t row : {0, 6, 15})
      check_counts("combiner-logsparse", Json::object(), logsparse(kTokens, causal)(0, 0, row), row, kTokens, causal);
}

TEST_CASE("combiner golden numbers") {
  // Spans {0, 1} and {2, 3}; row 0 asks 1. Direct keys 0 and ln 2 of values 1 and 2; the set's key is max(0, ln 3), its
  // value, q's maximum being 1, (1 * 4 + 3 * 8) / 4 = 7: weights 1, 2 and 3, (1 + 4 + 21) / 6.
  const at::Tensor q = column({1, 1, 1, 1}), k = column({0, std::log(2.0), 0, std::log(3.0)}), v = column({1, 2, 4, 8});
  const Setup one{.heads = 1, .head_dim = 1};
  CHECK(make_core("combiner-fixed", {{"block", 2}}, one)(q, k, v)[0][0][0][0].item<double>() == Approx(26.0 / 6));
  // Row 0 of -logsparse reads itself, {1} and {2, 3}: the same keys.
  CHECK(make_core("combiner-logsparse", {}, one)(q, k, v)[0][0][0][0].item<double>() == Approx(26.0 / 6));
}

TEST_CASE("combiner's causal forms do not read later tokens, bit for bit") {
  for (const std::string name : {"combiner-fixed", "combiner-logsparse"})
    for (const int64_t n : {16, 21}) check_no_leak(make_core(name, {{"block", 4}}, {.causal = true}), n);
}

TEST_CASE("combiner's pairs are those of its patterns and of the closed forms") {
  for (const Case& c : cases())
    for (const bool causal : {false, true})
      for (const int64_t n : {64, 47, 5}) {
        INFO(c.name << " " << c.options.dump() << " pinned " << c.pinned << " causal " << causal << " n " << n);
        const Pattern pattern = c.pattern(n, causal);
        int64_t terms = 0;
        for (int64_t i = 0; i < n; ++i) {
          const Supports supports = pattern(0, 0, i);
          terms += static_cast<int64_t>(supports.direct.size() + supports.sets.size());
        }
        const int64_t rest = n - c.pinned;
        int64_t local = c.name == "combiner-fixed" && rest > c.span ? rest : 0;  // tokens once a level
        for (int64_t size = 2; c.name == "combiner-logsparse" && size < rest; size *= 2) local += rest;
        const Cost cost = make(c, causal, 64).module->cost({1, 1, n, n, 1});
        CHECK(cost.flops_pattern == 4.0 * static_cast<double>(terms + local));
        CHECK(cost.flops_pattern <= cost.flops_executed);
      }
  // Mean terms of a row of -logsparse at n = 2^m: 1 + m/2 causal, 1 + m else.
  for (const bool causal : {false, true}) {
    int64_t terms = 0;
    for (int64_t i = 0; i < 256; ++i) terms += 1 + static_cast<int64_t>(logsparse(256, causal)(0, 0, i).sets.size());
    CHECK(terms == 256 * (causal ? 5 : 9));
  }
}

TEST_CASE("combiner-fixed's own spans are the power of two above the root of the longest length") {
  for (const auto& [longest, span] : {std::pair{1024, 32}, {2048, 64}, {4096, 64}, {1000, 32}, {1, 1}}) {
    const Inputs in = random_inputs(1, 1, std::min(longest, 100), 5);
    const Setup setup{.max_len = longest};
    CHECK(max_difference(make_core("combiner-fixed", {}, setup)(in.q, in.k, in.v),
                         make_core("combiner-fixed", {{"block", span}}, setup)(in.q, in.k, in.v)) == 0);
  }
}

}  // namespace xformer::attention::combiner_test
