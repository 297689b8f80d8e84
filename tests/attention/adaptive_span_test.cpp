// adaptive-span (attention-more 7).
#include <cmath>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::adaptive_span_test {

using namespace support;

template <class Built>
at::Tensor tensor_of(const Built& built, const std::string& name) {
  for (const auto& [key, value] : built.state())
    if (key == name) return value.detach();
  FAIL("no tensor " << name);
  return {};
}

struct Case {
  int64_t span = 0;
  int64_t ramp = 6;
  bool self = true;

  [[nodiscard]] Json options() const { return {{"span", span}, {"ramp", ramp}, {"include_self", self}}; }
};

// The equations, a pair at a time.
at::Tensor reference(const BuiltCore& core, const Inputs& in, const SequenceMask& mask, const Case& c,
                     int64_t longest) {
  const int64_t span = c.span > 0 ? c.span : longest, first = c.self ? 0 : 1;
  const at::Tensor z = tensor_of(core, "span"), past = tensor_of(core, "shared.adaptive_span_past");
  const at::Tensor ahead = mask.causal || span - 1 + first == 0 ? past : tensor_of(core, "shared.adaptive_span_ahead");
  at::Tensor out = at::zeros_like(in.q);
  const int64_t n = in.q.size(2);
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h)
      for (int64_t i = 0; i < n; ++i) {
        std::vector<double> weights;  // m exp(s)
        std::vector<int64_t> keys;
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t x = std::abs(i - j) - first;
          if (x < 0 || x >= span || (mask.causal && j > i)) continue;
          if (!mask.all_valid() && !mask.key_valid[b][j].item<bool>()) continue;
          const at::Tensor vector = j <= i ? past[x] : ahead[x - 1 + first];
          const double score = (in.q[b][h][i] * (in.k[b][h][j] + vector)).sum().item<double>() / std::sqrt(5.0);
          const double soft =
              (static_cast<double>(c.ramp) + static_cast<double>(span) * z[h].item<double>() - static_cast<double>(x)) /
              static_cast<double>(c.ramp);
          weights.push_back(std::exp(score) * std::min(1.0, std::max(0.0, soft)));
          sum += weights.back();
          keys.push_back(j);
        }
        if (sum == 0) continue;
        for (size_t j = 0; j < keys.size(); ++j) out[b][h][i] += weights[j] / sum * in.v[b][h][keys[j]];
      }
  return out;
}

BuiltCore make(const Case& c, bool causal, std::vector<double> z = {0, 0.4}, int64_t longest = 40) {
  const BuiltCore core = make_core("adaptive-span", c.options(), {.max_len = longest, .causal = causal});
  tensor_of(core, "span").copy_(at::tensor(z, at::kDouble).view({2, 1, 1}));
  return core;
}

TEST_CASE("adaptive-span equals its equations, ragged, of any length, with and without the token itself") {
  for (const Case& c : {Case{}, Case{9, 3}, Case{9, 3, false}, Case{0, 32, false}, Case{1, 1}, Case{1, 2, false}})
    for (const bool causal : {false, true})
      for (const int64_t n : {33, 12, 2, 1}) {
        INFO(c.options().dump() << " causal " << causal << " n " << n);
        const Inputs in = random_inputs(2, 2, n, 5);
        const BuiltCore core = make(c, causal);
        for (const SequenceMask& mask : {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal)})
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                               valid_rows(reference(core, in, mask, c, 40), mask)) < 1e-10);
      }
}

TEST_CASE("adaptive-span combines blocks at lengths of several windows") {
  const Case c{20, 8};
  const int64_t n = 90;
  const Inputs in = random_inputs(1, 2, n, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({n - 7}, n, causal);
    const BuiltCore core = make(c, causal);
    CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                         valid_rows(reference(core, in, mask, c, 40), mask)) < 1e-10);
  }
}

TEST_CASE("adaptive-span golden numbers") {
  // z = 0 and R = 2: the token itself counts whole, its neighbours half; logits 0 and values 4, 6, 1.
  const BuiltCore core = make_core("adaptive-span", {{"ramp", 2}}, {.heads = 1, .head_dim = 1, .max_len = 3});
  const at::Tensor out = core(column({0, 0, 0}), column({5, 1, 2}), column({4, 6, 1})).flatten();
  CHECK(max_difference(out, at::tensor({7 / 1.5, 8.5 / 2, 4 / 1.5}, at::kDouble)) < 1e-10);
}

TEST_CASE("a span of all is a window of softmax, and without a fade or vectors causal softmax") {
  const int64_t n = 30;
  const Inputs in = random_inputs(2, 2, n, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({n, 19}, n, causal);
    const auto plain = [&](int64_t span) {
      const BuiltCore core = make({span, 6}, causal, {1, 1});
      tensor_of(core, "shared.adaptive_span_past").zero_();
      if (!causal) tensor_of(core, "shared.adaptive_span_ahead").zero_();
      return valid_rows(core(in.q, in.k, in.v, mask), mask);
    };
    const at::Tensor window = make_core("local-window", {{"window", {7}}}, {.causal = causal})(in.q, in.k, in.v, mask);
    CHECK(max_difference(plain(8), window) < 1e-10);
    CHECK(max_difference(plain(0), valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
  }
}

TEST_CASE("a head of span 0 weighs keys within the ramp alone, by the steps that are left") {
  const int64_t n = 20, ramp = 6;
  const at::Tensor q = at::zeros({1, 2, n, n}, at::kDouble), eye = at::eye(n, at::kDouble).expand({1, 2, n, n});
  const BuiltCore core = make_core("adaptive-span", {{"ramp", ramp}}, {.head_dim = n, .max_len = n, .causal = true});
  const at::Tensor weights = core(q, q, eye, {{}, true})[0][0][15];
  for (int64_t j = 0; j < n; ++j) {
    const double left = j > 15 ? 0 : static_cast<double>(std::max<int64_t>(0, ramp - (15 - j)));
    CHECK(weights[j].item<double>() == Approx(left / 21).margin(1e-12).epsilon(1e-10));
  }
}

TEST_CASE("causal adaptive-span gives rows that no later token changes, in any bit, with the vectors of both ways") {
  const int64_t n = 37;
  const Inputs in = random_inputs(1, 2, n, 5), other = random_inputs(1, 2, n, 5, "later");
  for (const Case& c : {Case{}, Case{9, 3, false}}) {
    const BuiltCore core = make(c, true), both = make(c, false);
    const at::Tensor out = core(in.q, in.k, in.v, {{}, true});
    for (const int64_t seen : {1, 2, 17, 36}) {
      const auto mixed = [&](const at::Tensor& a, const at::Tensor& b) {
        return at::cat({a.narrow(2, 0, seen), b.narrow(2, seen, n - seen)}, 2);
      };
      const at::Tensor changed = core(mixed(in.q, other.q), mixed(in.k, other.k), mixed(in.v, other.v), {{}, true});
      CHECK(changed.narrow(2, 0, seen).equal(out.narrow(2, 0, seen)));
      const auto cut = [&](const at::Tensor& x) { return x.narrow(2, 0, seen); };
      CHECK(max_difference(both(cut(in.q), cut(in.k), cut(in.v)).select(2, seen - 1), out.select(2, seen - 1)) < 1e-10);
    }
  }
}

TEST_CASE("keys outside of a head's span change no bit, and are not multiplied") {
  const int64_t n = 200;
  const Case c{0, 6};
  for (const bool causal : {false, true}) {
    const BuiltCore core = make(c, causal, {0.05, 0.1}, n);  // 16 and 26 steps
    const auto flops = [&](const std::vector<double>& z) {
      tensor_of(core, "span").copy_(at::tensor(z, at::kDouble).view({2, 1, 1}));
      const Inputs in = random_inputs(1, 2, n, 5);
      const OpCounter counter;
      core(in.q, in.k, in.v, {{}, causal});
      const auto counted = static_cast<double>(counter.counts().flops);
      CHECK(counted == core.module->cost({1, 2, n, n, 5}).flops_executed);
      return counted;
    };
    CHECK(flops({0.05, 0.1}) < 0.35 * flops({1, 1}));
    CHECK(flops({0.05, 1}) < 0.7 * flops({1, 1}));  // each head its own
    tensor_of(core, "span").copy_(at::tensor({0.05, 0.1}, at::kDouble).view({2, 1, 1}));
    const Inputs in = random_inputs(1, 2, n, 5);
    const at::Tensor before = core(in.q, in.k, in.v, {{}, causal}).select(2, 100).clone();
    for (const at::Tensor& x : {in.k, in.v}) {
      x.narrow(2, 0, 75).add_(3);  // 26 steps back and more
      x.narrow(2, 126, n - 126).sub_(3);
    }
    const at::Tensor after = core(in.q, in.k, in.v, {{}, causal}).select(2, 100);
    CHECK(after.equal(before));
  }
}

TEST_CASE("the gradient of a span is that of differences, at the kinks of its ramp too") {
  const int64_t n = 45;
  const Inputs in = random_inputs(1, 2, n, 5);
  for (const bool causal : {false, true})
    for (const bool self : {true, false})
      for (const std::vector<double>& z : {std::vector<double>{0, 0.05}, {0.31, 0.5}, {1, 0.975}}) {
        INFO("causal " << causal << " self " << self << " z " << z[0]);
        const BuiltCore core = make({0, 6, self}, causal, z);
        const at::Tensor span = core.module->named_parameters()["span"];
        const auto loss = [&] { return core(in.q, in.k, in.v, {{}, causal}).pow(3).sum(); };
        loss().backward();
        for (int64_t h = 0; h < 2; ++h) {
          const auto at_z = [&](double change) {
            const at::NoGradGuard no_grad;
            span.data()[h] += change;
            const double result = loss().item<double>();
            span.data()[h] -= change;
            return result;
          };
          const auto difference = [&](double step) { return (at_z(step) - at_z(-step)) / (2 * step); };
          // Beside a kink differences are off by a share of their step, which two steps take out.
          const double expected = 2 * difference(5e-6) - difference(1e-5);
          CHECK(span.grad()[h].item<double>() == Approx(expected).epsilon(1e-5).margin(1e-5));
        }
      }
}

TEST_CASE("the spans have a penalty, a gradient, and stay within 0 and 1") {
  const BuiltCore core = make({}, false, {0.25, 0.75});
  core.module->train();
  CHECK(extra_loss(*core.module).item<double>() == Approx(5e-7 * 40 * 0.5));
  const Inputs in = random_inputs(1, 2, 30, 5);
  (core(in.q, in.k, in.v).square().sum() + extra_loss(*core.module)).backward();
  const at::Tensor z = core.module->named_parameters()["span"];
  CHECK(z.grad().abs().min().item<double>() > 0);
  z.data().copy_(at::tensor({-0.5, 1.5}, at::kDouble).view({2, 1, 1}));
  after_step(*core.module, 1);
  CHECK(z.flatten().equal(at::tensor({0.0, 1.0}, at::kDouble)));
  CHECK_FALSE(extra_loss(*make_core("adaptive-span", {{"span_penalty", 0}}).module).defined());
}

TEST_CASE("adaptive-span's pairs are those within its heads' spans, times three products") {
  for (const Case& c : {Case{}, Case{9, 3}, Case{9, 3, false}})
    for (const bool causal : {false, true})
      for (const int64_t n : {48, 17, 1}) {
        int64_t pairs = 0;
        for (const double z : {0.0, 0.4})
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j) {
              const int64_t x = std::abs(i - j) - (c.self ? 0 : 1), span = c.span > 0 ? c.span : 40;
              const bool seen = static_cast<double>(x) <= z * static_cast<double>(span) + static_cast<double>(c.ramp);
              pairs += x >= 0 && x < span && seen && (!causal || j <= i) ? 1 : 0;
            }
        CHECK(make(c, causal).module->cost({2, 2, n, n, 5}).flops_pattern == 6.0 * 2 * 5 * static_cast<double>(pairs));
      }
}

TEST_CASE("adaptive-span's defaults, parameters and refusals") {
  const Json options = full_options(resolve("adaptive-span"));
  CHECK(options["ramp"] == 32);
  CHECK(options["span_penalty"] == 5e-7);
  const auto count = [](bool causal) {
    int64_t result = 0;
    for (const auto& [key, tensor] :
         make_mixer("adaptive-span", {}, {.head_dim = 32, .max_len = 2048, .causal = causal}).parameters())
      result += tensor.numel();
    return result;
  };
  CHECK(count(true) == 16640 + 2 + 2048 * 32);
  CHECK(count(false) == 16640 + 2 + (2 * 2048 - 1) * 32);
  CHECK_THROWS_AS(make_core("adaptive-span", {{"ramp", 0}}), UserError);
  CHECK(tensor_fault(resolve("adaptive-span"), "span", at::full({2, 1, 1}, 1.5)).find("0 to 1") != std::string::npos);
  CHECK(tensor_fault(resolve("adaptive-span"), "span", at::zeros({2, 1, 1})).empty());
}

}  // namespace xformer::attention::adaptive_span_test
