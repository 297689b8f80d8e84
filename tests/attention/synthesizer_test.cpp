// synth-dense, synth-random, synth-fact-random, synth-fact-dense, synth-random-dot (attention-core 3.8).
#include <ATen/autocast_mode.h>

#include "attention/support.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::synthesizer_test {

using namespace support;

const std::vector<std::string> kKinds = {"synth-dense", "synth-random", "synth-fact-random", "synth-fact-dense"};

// The tensor of that name to read or to write, or an undefined one.
at::Tensor find(const BuiltMixer& mixer, const std::string& name) {
  for (const auto& [key, value] : mixer.state())
    if (key == name) return value.detach();
  return {};
}

at::Tensor tensor_of(const BuiltMixer& mixer, const std::string& name) {
  const at::Tensor result = find(mixer, name);
  if (!result.defined()) FAIL("no tensor " << name);
  return result;
}

// x W^T + bias of one row, from the tables of a linear map.
std::vector<double> mapped(const at::Tensor& weight, const at::Tensor& bias, const std::vector<double>& x) {
  std::vector<double> result;
  const auto w = weight.accessor<double, 2>();
  for (int64_t r = 0; r < weight.size(0); ++r) {
    double sum = bias[r].item<double>();
    for (size_t c = 0; c < x.size(); ++c) sum += w[r][static_cast<int64_t>(c)] * x[c];
    result.push_back(sum);
  }
  return result;
}

// S_i of one head, all N_max columns, by the definition.
std::vector<double> scores_of_row(const BuiltMixer& mixer, const std::string& kind, const std::vector<double>& x,
                                  int64_t i, int64_t head, int64_t d) {
  if (kind == "synth-random") {
    const at::Tensor row = tensor_of(mixer, "table")[head][i].contiguous();
    return {row.data_ptr<double>(), row.data_ptr<double>() + row.numel()};
  }
  if (kind == "synth-fact-random") {
    const at::Tensor left = tensor_of(mixer, "left")[head][i], right = tensor_of(mixer, "right")[head];
    std::vector<double> result;
    for (int64_t j = 0; j < right.size(1); ++j) {
      double sum = 0;
      for (int64_t k = 0; k < right.size(0); ++k) sum += left[k].item<double>() * right[k][j].item<double>();
      result.push_back(sum);
    }
    return result;
  }
  std::vector<double> hidden = mapped(tensor_of(mixer, "hidden.weight").narrow(0, head * d, d),
                                      tensor_of(mixer, "hidden.bias").narrow(0, head * d, d), x);
  for (double& number : hidden) number = std::max(number, 0.0);
  const auto head_of = [&](const std::string& name) {
    return mapped(tensor_of(mixer, name + "_weight")[head], tensor_of(mixer, name + "_bias")[head][0], hidden);
  };
  if (kind == "synth-dense") return head_of("score");
  std::vector<double> result;
  const std::vector<double> fine = head_of("fine");
  for (const double a : head_of("coarse"))
    for (const double b : fine) result.push_back(a * b);
  return result;
}

at::Tensor heads_of(const BuiltMixer& mixer, const std::string& name, const at::Tensor& x, int64_t heads) {
  const at::Tensor rows = at::linear(x, tensor_of(mixer, name + ".weight"), tensor_of(mixer, name + ".bias"));
  return rows.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2).contiguous();
}

at::Tensor reference(const BuiltMixer& mixer, const std::string& kind, bool dot, const at::Tensor& x,
                     const SequenceMask& mask) {
  const int64_t heads = 2, n = x.size(1), m = x.size(2), d = m / heads;
  at::Tensor scores = at::zeros({x.size(0), heads, n, n}, at::kDouble);
  auto s = scores.accessor<double, 4>();
  const auto rows = x.accessor<double, 3>();
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < n; ++i) {
        const auto row = scores_of_row(mixer, kind, {rows[b][i].data(), rows[b][i].data() + m}, i, h, d);
        for (int64_t j = 0; j < n; ++j) s[b][h][i][j] = row[static_cast<size_t>(j)];
      }
  if (dot)
    scores += at::matmul(heads_of(mixer, "query", x, heads), heads_of(mixer, "key", x, heads).transpose(-1, -2)) /
              std::sqrt(static_cast<double>(d));
  const at::Tensor out =
      dense_attention(heads_of(mixer, "value", x, heads), mask, n,
                      [&](int64_t b, int64_t h, int64_t i, int64_t j) { return std::exp(s[b][h][i][j]); });
  return at::linear(out.transpose(1, 2).flatten(2), tensor_of(mixer, "out.weight"), tensor_of(mixer, "out.bias"));
}

// Biases begin at zero, where an error in them would not show.
BuiltMixer make_biased(const std::string& name, const Json& options, const Setup& setup) {
  const BuiltMixer mixer = make_mixer(name, options, setup);
  for (const auto& [key, value] : mixer.parameters())
    if (key.ends_with("bias")) value.data().copy_(random_tensor(key, value.sizes()));
  return mixer;
}

TEST_CASE("synthesizers equal their equations in loops, with and without q k, causal or not, for ragged lengths") {
  for (const std::string& kind : kKinds)
    for (const bool dot : {false, true})
      for (const bool causal : {false, true})
        for (const int64_t max_len : {24, 23}) {  // 4 times 6; 1 times 23
          INFO(kind << " dot " << dot << " causal " << causal << " longest " << max_len);
          const BuiltMixer mixer =
              make_biased(kind, {{"dot", dot}, {"rank", 3}}, {.max_len = max_len, .causal = causal});
          for (const int64_t n : {max_len, int64_t{17}, int64_t{4}, int64_t{1}}) {
            const at::Tensor x = random_tensor("x", {2, n, 10});
            for (const SequenceMask& mask : {length_mask({n, (n + 1) / 2}, n, causal), SequenceMask{{}, causal}})
              CHECK(max_difference(valid_rows(mixer(x, mask), mask),
                                   valid_rows(reference(mixer, kind, dot, x, mask), mask)) < 1e-10);
          }
        }
}

TEST_CASE("synth-random golden number") {
  const BuiltMixer mixer = make_mixer("synth-random", {}, {.heads = 1, .head_dim = 1, .max_len = 3});
  for (const char* name : {"value.weight", "out.weight"}) tensor_of(mixer, name).fill_(1);
  for (const char* name : {"value.bias", "out.bias"}) tensor_of(mixer, name).fill_(0);
  // Scores 0 and ln 3 give weights 1/4 and 3/4: 1/4 * 4 + 3/4 * 8 = 7.
  tensor_of(mixer, "table").zero_();
  tensor_of(mixer, "table")[0][0][1] = std::log(3.0);
  CHECK(mixer(at::tensor({4., 8.}).view({1, 2, 1}))[0][0][0].item<double>() == Approx(7));
}

TEST_CASE("synthesizers whose scores are zero give the mean of the valid values") {
  const std::map<std::string, std::string> silent = {{"synth-dense", "score_weight"},
                                                     {"synth-random", "table"},
                                                     {"synth-fact-random", "left"},
                                                     {"synth-fact-dense", "coarse_weight"}};
  for (const auto& [kind, name] : silent) {
    INFO(kind);
    const BuiltMixer mixer = make_mixer(kind);
    tensor_of(mixer, name).zero_();
    const at::Tensor x = random_tensor("x", {1, 20, 10});
    const at::Tensor mean = x.narrow(1, 0, 13).mean(1, true);
    const at::Tensor value = at::linear(mean, tensor_of(mixer, "value.weight"), tensor_of(mixer, "value.bias"));
    const at::Tensor expected = at::linear(value, tensor_of(mixer, "out.weight"), tensor_of(mixer, "out.bias"));
    CHECK(max_difference(mixer(x, length_mask({13}, 20)).narrow(1, 0, 13), expected.expand({1, 13, 10})) < 1e-12);
  }
}

// Gives `to` the projections of `from`, as far as it has them.
void copy_projections(const BuiltMixer& from, const BuiltMixer& to) {
  for (const std::string name : {"query", "key", "value", "out"})
    for (const std::string part : {".weight", ".bias"})
      if (const at::Tensor target = find(to, name + part); target.defined()) target.copy_(tensor_of(from, name + part));
}

TEST_CASE("synthesizers with q k and zero scores equal softmax, and synth-random of the scores of softmax too") {
  const BuiltMixer softmax = make_mixer("softmax");
  const at::Tensor x = random_tensor("x", {1, 20, 10});
  const SequenceMask mask = length_mask({13}, 20);
  const at::Tensor expected = softmax(x, mask);
  const std::map<std::string, std::string> silent = {{"synth-dense", "score_weight"},
                                                     {"synth-random", "table"},
                                                     {"synth-random-dot", "table"},
                                                     {"synth-fact-random", "right"},
                                                     {"synth-fact-dense", "fine_weight"}};
  for (const auto& [kind, name] : silent) {
    INFO(kind);
    const BuiltMixer mixer = make_mixer(kind, {{"dot", true}});
    copy_projections(softmax, mixer);
    tensor_of(mixer, name).zero_();
    CHECK(max_difference(mixer(x, mask), expected) < 1e-12);
  }
  const BuiltMixer table = make_mixer("synth-random", {}, {.max_len = 20});
  copy_projections(softmax, table);
  const at::Tensor q = heads_of(softmax, "query", x, 2), k = heads_of(softmax, "key", x, 2);
  tensor_of(table, "table").copy_((at::matmul(q, k.transpose(-1, -2)) / std::sqrt(5.0))[0]);
  CHECK(max_difference(table(x, mask), expected) < 1e-12);
}

TEST_CASE("synth-fact-random of full rank with the identity as second factor equals synth-random") {
  const BuiltMixer random = make_mixer("synth-random", {}, {.max_len = 20});
  const BuiltMixer factors = make_mixer("synth-fact-random", {{"rank", 20}}, {.max_len = 20});
  copy_projections(random, factors);
  tensor_of(factors, "left").copy_(tensor_of(random, "table"));
  tensor_of(factors, "right").copy_(at::eye(20, at::kDouble).expand({2, 20, 20}));
  const at::Tensor x = random_tensor("x", {2, 17, 10});
  const SequenceMask mask = length_mask({17, 9}, 17);
  CHECK(max_difference(factors(x, mask), random(x, mask)) < 1e-12);
}

TEST_CASE("synth-random-dot, also named synthesizer, is synth-random with q k and has no options") {
  CHECK(resolve("synthesizer").name == "synth-random-dot");
  CHECK(resolve("synth-random-dot").options().empty());
  const at::Tensor x = random_tensor("x", {2, 20, 10});
  CHECK(at::equal(make_mixer("synth_random_dot")(x), make_mixer("synth-random", {{"dot", true}})(x)));
  CHECK_FALSE(find(make_mixer("synth-random"), "query.weight").defined());
}

TEST_CASE("synthesizers have the parameters of their tables") {
  const int64_t n = 2048, h = 2, m = 64, d = 32, base = 16640, half = base / 2;
  const auto count = [&](const std::string& name, const Json& options = Json::object(), bool bias = true) {
    const Resolved attention = resolve(name);
    BuildContext context = make_context({.heads = 2, .head_dim = 32, .max_len = 2048});
    context.bias = bias;
    int64_t result = 0;
    for (const at::Tensor& parameter : build_mixer(attention, full_options(attention, options), context)->parameters())
      result += parameter.numel();
    return result;
  };
  CHECK(count("synth-random") == half + h * n * n);
  CHECK(count("synth-random-dot") == base + h * n * n);
  CHECK(count("synth-fact-random") == half + 2 * h * n * 32);
  CHECK(count("synth-fact-random", {{"rank", 8}, {"dot", true}}) == base + 2 * h * n * 8);
  CHECK(count("synth-dense") == half + h * ((m + 1) * d + (d + 1) * n));
  CHECK(count("synth-dense", {}, false) == 2 * m * m + h * (m * d + d * n));
  CHECK(count("synth-fact-dense") == half + h * ((m + 1) * d + (d + 1) * (32 + 64)));  // 2048 = 32 * 64
}

TEST_CASE("what makes the scores begins as Xavier uniform, without bias, in either scheme") {
  const auto largest = [](const at::Tensor& x) { return x.abs().max().item<double>(); };
  const Setup setup{.max_len = 48};
  const BuiltMixer random = make_mixer("synth-random", {}, setup), dense = make_mixer("synth-dense", {}, setup);
  const BuiltMixer product = make_mixer("synth-fact-random", {}, setup);
  const auto check = [&](const at::Tensor& x, double rows_and_columns) {
    const double bound = std::sqrt(6 / rows_and_columns);
    CHECK(largest(x) <= bound);
    CHECK(largest(x) > 0.95 * bound);
  };
  check(tensor_of(random, "table"), 96);
  check(tensor_of(product, "left"), 48 + 32);
  check(tensor_of(product, "right"), 48 + 32);
  check(tensor_of(dense, "score_weight"), 48 + 5);
  check(tensor_of(dense, "hidden.weight"), 10 + 10);
  CHECK(largest(tensor_of(dense, "score_bias")) == 0);
  CHECK(largest(tensor_of(dense, "hidden.bias")) == 0);
}

TEST_CASE("synthesizers cost the square of the length, and half of it where causal rows end") {
  const double d = 32, m = 64;
  const auto cost = [&](const std::string& kind, bool dot, int64_t n, bool causal = false) {
    const Setup setup{.heads = 2, .head_dim = 32, .max_len = 2048, .causal = causal};
    return make_mixer(kind, {{"dot", dot}}, setup).module->cost(3, n);
  };
  for (const bool dot : {false, true}) {
    const auto per_pair = [&](const std::string& kind, double n) {  // without what grows with n alone
      const double once = cost(kind, dot, static_cast<int64_t>(n)).flops_executed,
                   twice = cost(kind, dot, static_cast<int64_t>(2 * n)).flops_executed;
      return (twice - 2 * once) / (2 * n * n);
    };
    const double values = 2 * 6 * d * (dot ? 2 : 1);
    CHECK(per_pair("synth-random", 512) == Approx(values));
    CHECK(per_pair("synth-dense", 512) == Approx(values + 2 * 6 * d));
    CHECK(per_pair("synth-fact-random", 512) == Approx(values + 2 * 2 * 32));
  }
  const double projections = 4.0 * 3 * 512 * m * m;
  CHECK(cost("synth-random", false, 512).flops_executed == projections + 2 * 6 * d * 512 * 512);
  CHECK(cost("synth-random", false, 512).peak_elements == 2 * 6 * 512 * 512);
  const Cost causal = cost("synth-random", false, 512, true);
  CHECK(causal.flops_executed == projections + 2 * 6 * d * 512 * 512);
  CHECK(causal.flops_pattern == projections + 2 * 6 * d * 512 * 513 / 2);
}

TEST_CASE("synthesizers without q k cost what is counted, at any length") {
  for (const std::string& kind : kKinds)
    for (const int64_t max_len : {130, 127})
      for (const int64_t n : {1, 5, 10, 77, 127}) {
        INFO(kind << " n " << n << " of " << max_len);
        const BuiltMixer mixer = make_mixer(kind, {}, {.max_len = max_len});
        const at::Tensor x = random_tensor("x", {3, n, 10});
        const OpCounter counter;
        (void)mixer(x);
        CHECK(static_cast<double>(counter.counts().flops) == mixer.module->cost(3, n).flops_executed);
      }
}

TEST_CASE("synthesizers drop normalised weights, of each sample for itself") {
  const BuiltMixer mixer = make_mixer("synth-random", {}, {.dropout = 0.5});
  const auto mixed = [&] {
    const ProbeRecorder recorder([](const std::string& name) { return name == "mixed"; });
    (void)mixer(random_tensor("x", {40, 1, 10}));
    return recorder.kept().at(0).second.detach().clone();
  };
  const at::Tensor whole = mixed();  // one token each: its weight is 1
  mixer.module->train();
  const at::Tensor kept = (mixed() / whole).select(-1, 0);  // [40,2,1]
  CHECK(at::logical_or(kept.abs() < 1e-12, (kept - 2).abs() < 1e-12).all().item<bool>());
  CHECK(kept.mean().item<double>() > 0.5);  // of 80 numbers 0 or 2
  CHECK(kept.mean().item<double>() < 1.5);
}

TEST_CASE("synthesizers compute their core in float32 under autocast") {
  for (const std::string& kind : kKinds) {
    const BuiltMixer mixer = make_mixer(kind, {{"dot", true}}, {.type = at::kFloat});
    const at::Tensor x = random_tensor("x", {2, 20, 10}).to(at::kFloat);
    const ProbeRecorder recorder([](const std::string&) { return true; });
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor out = mixer(x);
    CHECK(at::autocast::is_autocast_enabled(at::kCPU));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    CHECK(out.scalar_type() == at::kBFloat16);
    CHECK(recorder.kept().size() == 6);
    for (const auto& [name, tensor] : recorder.kept()) CHECK(tensor.scalar_type() == at::kFloat);
  }
}

TEST_CASE("synthesizers refuse what is longer than they were built for") {
  for (const std::string& kind : kKinds)
    CHECK_THROWS_AS(make_mixer(kind, {}, {.max_len = 19})(random_tensor("x", {1, 20, 10})), UserError);
}

}  // namespace xformer::attention::synthesizer_test
