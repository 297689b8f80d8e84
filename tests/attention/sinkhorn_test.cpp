// sinkhorn (attention-core 3.7, attention-more 11).
#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::sinkhorn_test {

using namespace support;

struct Case {
  std::string net = "linear";
  int64_t block = 4, rounds = 7, cut = 0;
  bool causal = false, mean = false;

  [[nodiscard]] Json options() const {
    return {{"block", block}, {"sort_net", net}, {"sort_rounds", rounds}, {"sort_cut", cut}, {"sort_mean", mean}};
  }
};

at::Tensor parameter(const BuiltCore& core, const std::string& name) {
  for (const auto& [key, value] : core.parameters())
    if (key == name) return value.data();
  FAIL("no parameter " << name);
  return {};
}

double product(const at::Tensor& a, const at::Tensor& b) { return (a * b).sum().item<double>(); }

using Matrix = std::vector<std::vector<double>>;

// One sample and head: q, k, v [n,d], valid tokens first.
struct Head {
  at::Tensor q, k, v;
  int64_t length, block;

  [[nodiscard]] int64_t blocks() const { return (q.size(0) + block - 1) / block; }
  [[nodiscard]] bool valid(int64_t i) const { return i < length; }
  [[nodiscard]] bool full(int64_t x) const { return valid(x * block); }
  // Sum of a block's valid rows; or, for causal, the mean of all of them up to its first token.
  [[nodiscard]] at::Tensor summary(const at::Tensor& rows, int64_t x, bool causal, bool mean) const {
    at::Tensor sum = at::zeros({rows.size(1)}, at::kDouble);
    int64_t count = 0;
    for (int64_t i = causal ? 0 : x * block; i < (causal ? x * block + 1 : std::min((x + 1) * block, q.size(0))); ++i)
      if (valid(i)) sum += rows[i], ++count;
    return (causal || mean) && count > 0 ? sum / static_cast<double>(count) : sum;
  }
};

// R of one head by its definition.
Matrix sort_matrix(const Head& head, const Case& c, const BuiltCore& core, int64_t h) {
  const int64_t t = head.blocks();
  Matrix r(t, std::vector<double>(t, -INFINITY));
  const auto linked = [&](int64_t x, int64_t y) { return head.full(x) && head.full(y) && (!c.causal || y < x); };
  for (int64_t x = 0; x < t; ++x)
    for (int64_t y = 0; y < t; ++y) {
      if (!linked(x, y)) continue;
      const auto key = [&](int64_t block, bool mean) { return head.summary(head.k, block, c.causal, mean); };
      const auto query = [&](int64_t block, bool mean) { return head.summary(head.q, block, c.causal, mean); };
      double s = 0;
      if (c.net == "linear") {
        s = product(key(y, false), parameter(core, "sort_weight")[h][x]) +
            parameter(core, "sort_bias")[h][x].item<double>();
      } else if (c.net == "linear-qk") {
        s = product(at::cat({query(x, false), key(x, false)}), parameter(core, "sort_weight")[h][y]);
      } else {
        s = product(query(x, true), key(y, true)) / std::sqrt(static_cast<double>(head.q.size(1)));
      }
      r[x][y] = (c.net == "linear" ? s : std::log(std::max(s, 0.0) + 1e-6)) / 0.75;
    }
  for (int64_t round = 0; round < c.rounds; ++round) {
    for (int64_t x = 0; x < t; ++x) {
      double sum = 0;
      for (int64_t y = 0; y < t; ++y) sum += std::exp(r[x][y]);
      for (int64_t y = 0; y < t; ++y)
        if (linked(x, y)) r[x][y] -= std::log(sum);
    }
    for (int64_t y = 0; y < t; ++y) {
      std::vector<double> sums(t);
      for (int64_t x = 0; x < t; ++x)
        for (int64_t other = 0; other < (c.causal ? x + 1 : t); ++other) sums[x] += std::exp(r[other][y]);
      for (int64_t x = 0; x < t; ++x)
        if (linked(x, y)) r[x][y] -= std::log(sums[x]);
    }
  }
  for (auto& row : r)
    for (double& entry : row) entry = std::exp(entry);
  return r;
}

at::Tensor reference_head(const Head& head, const Case& c, const BuiltCore& core, int64_t h) {
  const int64_t n = head.q.size(0), d = head.q.size(1), t = head.blocks();
  const Matrix r = sort_matrix(head, c, core, h);
  const at::Tensor out = at::zeros({n, d}, at::kDouble);
  for (int64_t i = 0; i < head.length; ++i) {
    const int64_t own = i / head.block;
    at::Tensor numerator = at::zeros({d}, at::kDouble);
    double denominator = 0;
    const auto add = [&](const at::Tensor& key, const at::Tensor& value) {
      const double weight = std::exp(product(head.q[i], key) / std::sqrt(static_cast<double>(d)));
      numerator += weight * value;
      denominator += weight;
    };
    for (int64_t x = c.cut > 0 ? 0 : own; x < (c.cut > 0 ? std::min(c.cut, t) : own + 1); ++x)
      for (int64_t slot = 0; slot < head.block; ++slot) {
        if (c.causal && x == 0) {
          const at::Tensor null = parameter(core, "null")[h][0];
          add(null.narrow(0, 0, d), null.narrow(0, d, d));
          continue;
        }
        at::Tensor key = at::zeros({d}, at::kDouble), value = at::zeros({d}, at::kDouble);
        double mass = 0;
        for (int64_t y = 0; y < t; ++y) {
          if (!head.valid(y * head.block + slot)) continue;
          key += r[x][y] * head.k[y * head.block + slot];
          value += r[x][y] * head.v[y * head.block + slot];
          mass += r[x][y];
        }
        if (mass > 1e-6) add(c.mean ? key / mass : key, c.mean ? value / mass : value);
      }
    for (int64_t j = own * head.block; c.cut == 0 && j < std::min((own + 1) * head.block, n); ++j)
      if (head.valid(j) && (!c.causal || j <= i)) add(head.k[j], head.v[j]);
    if (denominator > 0) out[i] = numerator / denominator;
  }
  return out;
}

at::Tensor reference(const Inputs& in, const std::vector<int64_t>& lengths, const Case& c, const BuiltCore& core) {
  const at::Tensor out = at::zeros_like(in.q);
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h)
      out[b][h] =
          reference_head({in.q[b][h], in.k[b][h], in.v[b][h], lengths[b], std::min(c.block, in.q.size(2))}, c, core, h);
  return out;
}

// What forward reports as `name`.
at::Tensor reported(const BuiltCore& core, const std::string& name, const Inputs& in, const SequenceMask& mask = {}) {
  const ProbeRecorder recorder([&](const std::string& seen) { return seen == name; });
  core(in.q, in.k, in.v, mask);
  REQUIRE(recorder.kept().size() == 1);
  return recorder.kept()[0].second.detach();
}

TEST_CASE("sinkhorn equals its definition in loops for every sort net, causal or cut, ragged or of any length") {
  for (const std::string net : {"linear", "linear-qk", "attention"})
    for (const Case& c :
         {Case{net}, Case{net, 4, 1}, Case{net, 5, 7, 2}, Case{net, 4, 7, 0, true}, Case{net, 3, 2, 0, true},
          Case{net, 4, 1, 0, false, true}, Case{net, 5, 7, 2, false, true}, Case{net, 3, 2, 0, true, true}}) {
      const BuiltCore core = make_core("sinkhorn", c.options(), {.max_len = 24, .causal = c.causal});
      if (net == "linear") parameter(core, "sort_bias").copy_(random_tensor("c", {2, (23 + c.block) / c.block}));
      for (const int64_t n : {22, 20, 7, 2, 1})
        for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{n, (2 * n + 2) / 3}, {1, n}}) {
          INFO(c.options().dump() << " causal " << c.causal << " n " << n);
          const Inputs in = random_inputs(2, 2, n, 5);
          const SequenceMask mask = length_mask(lengths, n, c.causal);
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), reference(in, lengths, c, core)) <
                1e-10);
          CHECK(max_difference(core(in.q, in.k, in.v, {{}, c.causal}), reference(in, {n, n}, c, core)) < 1e-10);
        }
    }
}

TEST_CASE("sinkhorn golden numbers") {
  // No sort logits: R is 1/2 everywhere, so both blocks bring key ln(3) / 2 and value 2. Scores ln(3) / 2 and 0:
  // (sqrt(3) * 2 + 1 * 0) / (sqrt(3) + 1) = 3 - sqrt(3).
  const BuiltCore core = make_core("sinkhorn", {{"block", 1}}, {.heads = 1, .head_dim = 1, .max_len = 2});
  parameter(core, "sort_weight").zero_();
  const at::Tensor q = column({1, 1}), k = column({0, std::log(3.0)}), v = column({0, 4});
  CHECK(core(q, k, v)[0][0][0][0].item<double>() == Approx(3 - std::sqrt(3.0)));
  // Causal: token 0 sees the null key (ln 3, value 4) and itself: 3/4 * 4 = 3; token 1 itself and block 0: the same.
  const BuiltCore causal =
      make_core("sinkhorn", {{"block", 1}}, {.heads = 1, .head_dim = 1, .max_len = 2, .causal = true});
  parameter(causal, "null").copy_(at::tensor({std::log(3.0), 4.0}).view({1, 1, 2}));
  const at::Tensor out = causal(q, k, v, {{}, true});
  CHECK(out[0][0][0][0].item<double>() == Approx(3));
  CHECK(out[0][0][1][0].item<double>() == Approx(3));
}

TEST_CASE("sinkhorn with a sharp sort is that permutation of blocks; with the identity it is block-local attention") {
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 1, 2, 3, 4}, {2, 0, 4, 1, 3}}) {
    const BuiltCore core = make_core("sinkhorn", {{"block", 3}}, {.heads = 1, .head_dim = 5, .max_len = 15});
    Inputs in = random_inputs(1, 1, 15, 5);
    // Block y sums to 20 along axis y, and row x looks along the axis of the block it shall take.
    parameter(core, "sort_weight").zero_();
    for (int64_t x = 0; x < 5; ++x) {
      in.k[0][0].narrow(0, 3 * x, 3) -= in.k[0][0].narrow(0, 3 * x, 3).mean(0);
      in.k[0][0][3 * x][x] += 20;
      parameter(core, "sort_weight")[0][x][order[static_cast<size_t>(x)]] = 20;
    }
    const at::Tensor sort = reported(core, "sort", in)[0][0];
    for (int64_t x = 0; x < 5; ++x)
      CHECK(sort[x][order[static_cast<size_t>(x)]].item<double>() == Approx(1).epsilon(1e-12));
    const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2))[0][0] / std::sqrt(5.0);
    const at::Tensor expected = dense_attention(in.v, {}, 15, [&](int64_t, int64_t, int64_t i, int64_t j) {
      const int64_t times = (i / 3 == j / 3 ? 1 : 0) + (order[static_cast<size_t>(i / 3)] == j / 3 ? 1 : 0);
      return static_cast<double>(times) * std::exp(scores[i][j].item<double>());
    });
    CHECK(max_difference(core(in.q, in.k, in.v), expected) < 1e-10);
  }
}

TEST_CASE("sinkhorn's sort is doubly stochastic over blocks with tokens, and causal sorts look back") {
  const Inputs in = random_inputs(2, 2, 48, 5);
  const std::vector<int64_t> lengths{48, 31};
  const BuiltCore core = make_core("sinkhorn", {{"block", 4}, {"sort_rounds", 20}});
  const at::Tensor sort = reported(core, "sort", in, length_mask(lengths, 48));
  for (int64_t b = 0; b < 2; ++b) {
    const int64_t full = (lengths[static_cast<size_t>(b)] + 3) / 4;
    const at::Tensor own = sort[b].narrow(1, 0, full).narrow(2, 0, full);
    CHECK((own.sum(-2) - 1).abs().max().item<double>() < 1e-12);  // the last step
    CHECK((own.sum(-1) - 1).abs().max().item<double>() < 1e-3);
    CHECK(sort[b].sum().item<double>() == Approx(own.sum().item<double>()).epsilon(1e-14));
  }
  const at::Tensor back = reported(make_core("sinkhorn", {{"block", 4}}, {.causal = true}), "sort", in, {{}, true});
  CHECK(back.triu().abs().max().item<double>() == 0);
  CHECK(back.tril(-1).sum().item<double>() > 1);
}

TEST_CASE("sinkhorn sums what the sort brings, as the paper does, and a plan of before sort_mean divided") {
  const Inputs in = random_inputs(1, 2, 20, 5);
  const SequenceMask mask = length_mask({18}, 20);
  const at::Tensor ones = at::ones_like(in.v);
  const auto sums_to = [&](const Json& options) {
    return (valid_rows(make_core("sinkhorn", options)(in.q, in.k, ones, mask), mask).narrow(2, 0, 18) - 1).abs().max();
  };
  CHECK(sums_to({{"block", 4}, {"sort_mean", true}}).item<double>() < 1e-12);
  CHECK(sums_to({{"block", 4}}).item<double>() > 1e-3);  // the last block's two missing tokens
  for (const OptionInfo& option : resolve("sinkhorn").options())
    if (option.name == "sort_mean") CHECK((option.fallback == false && option.neutral == true));
}

TEST_CASE("sinkhorn draws standard Gumbel noise in training only, afresh for every step") {
  const Setup setup{.heads = 8, .max_len = 64};
  const Resolved attention = resolve("sinkhorn");
  const BuildContext context = make_context(setup);
  BuiltCore core{{build_core(attention, full_options(attention, {{"block", 1}}), context), context.shared}};
  core.module->to(at::kDouble);
  core.module->train();
  const Inputs in = random_inputs(1, 8, 64, 5);
  const at::Tensor noise = reported(core, "gumbel", in), again = reported(core, "gumbel", in);
  CHECK(noise.equal(again));
  CHECK(noise.mean().item<double>() == Approx(0.5772).margin(0.03));  // 32768 numbers: deviation 0.007
  CHECK(noise.var().item<double>() == Approx(M_PI * M_PI / 6).margin(0.1));
  const at::Tensor trained = core(in.q, in.k, in.v);
  context.dropout_stream->set_step(1);
  CHECK_FALSE(reported(core, "gumbel", in).equal(noise));
  CHECK(max_difference(core(in.q, in.k, in.v), trained) > 1e-3);
  core.module->eval();
  const ProbeRecorder recorder([](const std::string& seen) { return seen == "gumbel"; });
  core(in.q, in.k, in.v);
  CHECK(recorder.kept().empty());
}

TEST_CASE("sinkhorn's gradients of every sort net and of the null key agree with finite differences") {
  for (const std::string net : {"linear", "linear-qk", "attention"})
    for (const bool causal : {false, true}) {
      INFO(net << " causal " << causal);
      const BuiltCore core = make_core("sinkhorn", {{"block", 3}, {"sort_net", net}, {"sort_rounds", 3}},
                                       {.head_dim = 3, .max_len = 14, .causal = causal});
      Inputs in = random_inputs(2, 2, 14, 3);
      const SequenceMask mask = length_mask({14, 9}, 14, causal);
      const at::Tensor weights = random_tensor("weights", {2, 2, 14, 3});
      std::vector<at::Tensor> tensors{in.q, in.k, in.v};
      for (at::Tensor& x : tensors) x.requires_grad_(true);
      for (const auto& [key, value] : core.parameters()) tensors.push_back(value);
      const auto loss = [&] { return (valid_rows(core(in.q, in.k, in.v, mask), mask) * weights).sum(); };
      loss().backward();
      const at::NoGradGuard no_grad;
      for (const at::Tensor& x : tensors) {
        const at::Tensor step = random_tensor("step", x.sizes()), original = x.data().clone();
        x.data().copy_(original + 1e-6 * step);
        const double above = loss().item<double>();
        x.data().copy_(original - 1e-6 * step);
        const double expected = (above - loss().item<double>()) / 2e-6;
        x.data().copy_(original);
        CHECK(std::abs(product(x.grad(), step) - expected) < 1e-6 * std::max(std::abs(expected), 1e-1));
      }
    }
}

TEST_CASE("sinkhorn's defaults, parameters, pattern and refusals") {
  const Json options = full_options(resolve("sinkhorn"));
  CHECK(options["block"] == 50);
  CHECK(options["sort_temperature"] == 0.75);
  CHECK(options["sort_rounds"] == 7);
  const auto count = [](const Json& overrides, bool causal) {
    int64_t result = 0;
    for (const auto& [key, tensor] :
         make_mixer("sinkhorn", overrides, {.head_dim = 32, .max_len = 2048, .causal = causal}).parameters())
      result += tensor.numel();
    return result;
  };
  CHECK(count({}, false) == 16640 + 2 * 41 * 33);  // 41 blocks of 50
  CHECK(count({{"sort_net", "linear-qk"}}, false) == 16640 + 2 * 41 * 64);
  CHECK(count({{"sort_net", "attention"}}, false) == 16640);
  CHECK(count({}, true) == 16640 + 2 * 41 * 33 + 2 * 64);
  // n = 12, b = 4, d = 5: 4 n 2 b d + 4 t^2 b d + 2 t^2 d.
  CHECK(make_core("sinkhorn", {{"block", 4}}).module->cost({1, 1, 12, 12, 5}).flops_pattern ==
        4 * 12 * 8 * 5 + 4 * 9 * 4 * 5 + 2 * 9 * 5);
  const Inputs in = random_inputs(1, 2, 20, 5);
  CHECK_THROWS_AS(make_core("sinkhorn", {{"block", 4}}, {.max_len = 16})(in.q, in.k, in.v), UserError);
  CHECK(make_core("sinkhorn", {{"block", 4}, {"sort_net", "attention"}}, {.max_len = 16})(in.q, in.k, in.v)
            .isfinite()
            .all()
            .item<bool>());
  CHECK_THROWS_AS(make_core("sinkhorn", {{"sort_cut", 1}}, {.causal = true}), UserError);
}

}  // namespace xformer::attention::sinkhorn_test
