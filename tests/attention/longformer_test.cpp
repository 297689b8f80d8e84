// longformer (attention-core 3.3).
#include <ATen/autocast_mode.h>

#include "attention/shared/windows.h"
#include "attention/support.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::longformer_test {

using namespace support;

// Does row i see j? The first g tokens see all and are seen by all.
bool sees(int64_t i, int64_t j, int64_t g, int64_t w, int64_t dilation) {
  return i < g || j < g || (std::abs(i - j) <= w * dilation && (i - j) % dilation == 0);
}

// In loops, rows of padding zero; head h has dilation[h]. Global rows use `rows`, which is `in` when maps are tied.
at::Tensor reference(const Inputs& in, const Inputs& rows, const SequenceMask& mask, int64_t g, int64_t w,
                     const std::vector<int64_t>& dilation) {
  const double scale = 1 / std::sqrt(static_cast<double>(in.q.size(-1)));
  const at::Tensor local = at::matmul(in.q, in.k.transpose(-1, -2)) * scale,
                   global = at::matmul(rows.q, rows.k.transpose(-1, -2)) * scale;
  const auto a = local.accessor<double, 4>(), c = global.accessor<double, 4>();
  const int64_t n = in.q.size(2);
  const auto weight = [&](bool global_row) {
    return [&, global_row](int64_t b, int64_t h, int64_t i, int64_t j) {
      if (!sees(i, j, g, w, dilation[static_cast<size_t>(h)])) return 0.0;
      return std::exp(global_row ? c[b][h][i][j] : a[b][h][i][j]);
    };
  };
  const int64_t first = std::min(g, n);
  const at::Tensor all = at::cat({dense_attention(rows.v, mask, n, weight(true)).narrow(2, 0, first),
                                  dense_attention(in.v, mask, n, weight(false)).narrow(2, first, n - first)},
                                 2);
  return valid_rows(all, mask);
}

Json sizes(int64_t g, int64_t w, const std::vector<int64_t>& dilation = {1}, bool tied = true) {
  return {{"global_tokens", g}, {"window", {w}}, {"dilation", dilation}, {"global_tied", tied}};
}

TEST_CASE("longformer equals its definition in loops, for dilations by head, ragged lengths and length 1") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 3, 4, 48, 93})
      for (const int64_t g : {0, 1, 4})
        for (const int64_t w : {0, 3, 32})
          for (const std::vector<int64_t>& dilation : {std::vector<int64_t>{1, 1}, {3, 3}, {4, 1}}) {
            INFO("causal " << causal << " n " << n << " g " << g << " w " << w << " dilations " << dilation[0]
                           << dilation[1]);
            const Inputs in = random_inputs(2, 2, n, 5);
            const BuiltCore core = make_core("longformer", sizes(g, w, dilation), {.causal = causal});
            for (const SequenceMask& mask : {SequenceMask{{}, causal}, length_mask({n, (2 * n + 1) / 3}, n, causal)})
              CHECK(max_difference(core(in.q, in.k, in.v, mask), reference(in, in, mask, g, w, dilation)) < 1e-10);
          }
}

TEST_CASE("longformer takes heads of one dilation together and puts each back in its place") {
  const std::vector<int64_t> dilation{2, 1, 3, 1, 2, 1};
  const Inputs in = random_inputs(2, 6, 40, 3);
  const SequenceMask mask = length_mask({40, 17}, 40);
  const BuiltCore core = make_core("longformer", sizes(2, 4, dilation), {.heads = 6, .head_dim = 3});
  CHECK(max_difference(core(in.q, in.k, in.v, mask), reference(in, in, mask, 2, 4, dilation)) < 1e-10);
  // Three for six heads are repeated.
  const BuiltCore repeated = make_core("longformer", sizes(2, 4, {2, 1, 3}), {.heads = 6, .head_dim = 3});
  CHECK(max_difference(repeated(in.q, in.k, in.v, mask), reference(in, in, mask, 2, 4, {2, 1, 3, 2, 1, 3})) < 1e-10);
}

TEST_CASE("longformer golden numbers") {
  const double ln3 = std::log(3.0);
  const at::Tensor q = column({1, 1, 1, 1}), k = column({0, ln3, 0, ln3}), v = column({0, 4, 8, 12});
  const Setup one{.heads = 1, .head_dim = 1};
  // Token 0 sees weights 1, 3, 1, 3; token 2 sees it and its neighbours, token 3 it, token 2 and itself.
  CHECK(max_difference(make_core("longformer", sizes(1, 1), one)(q, k, v).flatten(),
                       at::tensor({7.0, 20.0 / 5, 56.0 / 8, 44.0 / 5}, at::kDouble)) < 1e-12);
  // Steps of two without global tokens: tokens 0 and 2, tokens 1 and 3.
  CHECK(max_difference(make_core("longformer", sizes(0, 1, {2}), one)(q, k, v).flatten(),
                       at::tensor({4.0, 8.0, 4.0, 8.0}, at::kDouble)) < 1e-12);
}

TEST_CASE("longformer equals softmax with a full window or with all tokens global, and local-window without any") {
  const int64_t n = 48;
  const Inputs in = random_inputs(2, 2, n, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({n, 31}, n, causal);
    const auto run = [&](const std::string& name, const Json& options) {
      return make_core(name, options, {.causal = causal})(in.q, in.k, in.v, mask);
    };
    const at::Tensor all = valid_rows(dense_softmax(in, mask), mask);
    CHECK(max_difference(run("longformer", sizes(0, n - 1)), all) < 1e-10);
    CHECK(max_difference(run("longformer", sizes(3, n - 1)), all) < 1e-10);
    CHECK(max_difference(run("longformer", sizes(n, 0)), all) < 1e-10);
    CHECK(max_difference(run("longformer", sizes(n + 9, 0)), all) < 1e-10);
    CHECK(max_difference(run("longformer", sizes(0, n - 2)), all) > 1e-4);
    CHECK(max_difference(run("longformer", sizes(n - 2, 0)), all) > 1e-4);
    CHECK(at::equal(run("longformer", sizes(0, 5)), run("local-window", {{"window", {5}}})));
  }
}

TEST_CASE("longformer has the dilations of its layer, and the list begins again behind the last") {
  const std::vector<int64_t> by_layer{1, 1, 2, 1, 3, 1};  // three layers of two heads
  const Inputs in = random_inputs(2, 2, 40, 3);
  const SequenceMask mask{{}, /*causal=*/true};
  for (const int64_t layer : {0, 1, 2, 3}) {
    const auto first = by_layer.begin() + layer % 3 * 2;
    const BuiltCore core = make_core("longformer", sizes(0, 4, by_layer), {.layer = layer, .causal = true});
    CHECK(max_difference(core(in.q, in.k, in.v, mask), reference(in, in, mask, 0, 4, {first, first + 2})) < 1e-10);
  }
  CHECK_THROWS_WITH(make_core("longformer", sizes(0, 4, {1, 2, 3}), {}), Catch::Contains("for 2 heads"));
}

TEST_CASE("with dilation 3 the token at distance 3 has a gradient, and those at distance 1 and 2 have none") {
  const int64_t n = 61, row = 30;
  Inputs in = random_inputs(1, 2, n, 5);
  in.k.requires_grad_(true), in.v.requires_grad_(true);
  make_core("longformer", sizes(1, 2, {3}))(in.q, in.k, in.v).select(2, row).square().sum().backward();
  const at::Tensor gradient = at::cat({in.k.grad(), in.v.grad()}, -1).abs().amax(at::IntArrayRef({0, 1, 3}));
  for (int64_t j = 0; j < n; ++j) {
    INFO(j);
    const bool seen = j == 0 || j == 24 || j == 27 || j == 30 || j == 33 || j == 36;
    CHECK((gradient[j].item<double>() > 1e-6) == seen);
    CHECK((gradient[j].item<double>() == 0) == !seen);
  }
}

TEST_CASE("longformer's pairs have the closed forms of attention-core 3.3, and products are counted exactly") {
  const auto pairs = [](const Json& options, int64_t n) {
    return make_core("longformer", options).module->cost({3, 2, n, n, 5}).flops_pattern / (4 * 3 * 2 * 5);
  };
  for (const int64_t n : {40, 77, 2048})
    for (const int64_t w : {0, 5, 32})
      for (const int64_t g : {0, 1, 4})
        CHECK(pairs(sizes(g, w), n) == static_cast<double>(2 * g * n - g * g + (n - g) * (2 * w + 1) - w * (w + 1)));
  for (const int64_t dilation : {2, 3})  // n (2w + 1) - dilation w (w + 1)
    CHECK(pairs(sizes(0, 5, {dilation}), 77) == static_cast<double>(77 * 11 - dilation * 30));
  CHECK(pairs(sizes(0, 5, {1, 3}), 77) == (77 * 11 - 30 + 77 * 11 - 3 * 30) / 2.0);  // mean of two heads
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 4, 77}) {
      const BuiltCore core = make_core("longformer", sizes(3, 5, {1, 2}), {.causal = causal});
      const Inputs in = random_inputs(2, 2, n, 5);
      const OpCounter counter;
      (void)core(in.q, in.k, in.v, {{}, causal});
      const Cost cost = core.module->cost({2, 2, n, n, 5});
      CHECK(static_cast<double>(counter.counts().flops) == cost.flops_executed);
      double counted = 0;  // of both heads and samples
      for (const int64_t dilation : {1, 2})
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < (causal ? i + 1 : n); ++j) counted += 2 * sees(i, j, 3, 5, dilation);
      CHECK(cost.flops_pattern == 4 * 5 * counted);
    }
}

TEST_CASE("longformer's weights are those of its windows and global rows; its cost keeps none") {
  const int64_t n = 1024;
  const Inputs in = random_inputs(1, 2, n, 5);
  const BuiltCore core = make_core("longformer", sizes(3, 32, {1, 2}));
  const ProbeRecorder recorder([](const std::string&) { return true; });
  (void)core(in.q, in.k, in.v);
  double elements = 0;
  for (const auto& [name, tensor] : recorder.kept()) elements += static_cast<double>(tensor.numel());
  CHECK(recorder.seen() == std::vector<std::string>{"global.weights", "dilation1.weights", "dilation2.weights"});
  double expected = 2 * 3 * n;
  for (const int64_t dilation : {1, 2}) {
    const Windows windows = Windows::sliding(n - 3, 32, 32, dilation);
    expected += windows.explicit_pairs() + static_cast<double>(dilation * windows.blocks * windows.block * 3);
  }
  CHECK(elements == expected);
  CHECK(core.module->cost({1, 2, n, n, 5}).peak_elements == 2 * n * (4 * 5 + 1));
  CHECK(elements < 0.2 * 2 * n * n);
}

TEST_CASE("longformer drops the same weights whether a batch comes whole or in parts") {
  const Resolved attention = resolve("longformer");
  const BuildContext context = make_context({.dropout = 0.5});
  const auto core = build_core(attention, full_options(attention, sizes(2, 3, {1, 3})), context);
  const Inputs in = random_inputs(4, 2, 30, 5);
  Carry carry;
  context.dropout_stream->set_step(7);
  const at::Tensor whole = core->forward(in.q, in.k, in.v, {}, carry);
  context.dropout_stream->set_step(7, 2);
  const auto half = [](const at::Tensor& x) { return x.narrow(0, 2, 2); };
  CHECK(max_difference(core->forward(half(in.q), half(in.k), half(in.v), {}, carry), half(whole)) < 1e-12);
  core->eval();
  CHECK(max_difference(core->forward(in.q, in.k, in.v, {}, carry), whole) > 1e-2);
}

TEST_CASE("longformer runs at every length of the benchmarks and reads nothing back to the host") {
  for (const int64_t n : {1, 2, 7, 29, 93, 144, 315, 405, 1024, 1751}) {
    Inputs in = random_inputs(2, 2, n, 4);
    in.q.requires_grad_(true);
    const BuiltCore core = make_core("longformer", {{"dilation", {1, 4}}});
    const SequenceMask mask = length_mask({n, 1}, n);
    const OpCounter counter;
    const at::Tensor out = core(in.q, in.k, in.v, mask);
    out.sum().backward();
    CHECK(counter.counts().reads == 0);
    CHECK(out.isfinite().all().item<bool>());
  }
}

TEST_CASE("longformer refuses a number of dilations that does not fit its heads") {
  CHECK_THROWS_WITH(make_core("longformer", sizes(1, 3, {1, 2, 3})),
                    Catch::Contains("3 dilations [1,2,3] for 2 heads"));
  CHECK_THROWS_AS(make_core("longformer", sizes(1, 3, {0})), UserError);
}

// The mixer with maps of its own for global rows, whose values are made to differ from the copies they start as.
BuiltMixer untied(const Json& options, const Setup& setup, bool own_values = true) {
  Json complete = options;
  complete["global_tied"] = false;
  const BuiltMixer mixer = make_mixer("longformer", complete, setup);
  for (const auto& [key, value] : mixer.parameters())
    if (own_values && key.starts_with("global_"))
      value.data().copy_(random_tensor(key, value.sizes()).to(value.scalar_type()) * 0.4);
  return mixer;
}

at::Tensor parameter(const BuiltMixer& mixer, const std::string& name) {
  for (const auto& [key, value] : mixer.parameters())
    if (key == name) return value;
  FAIL("no parameter " << name);
  return {};
}

TEST_CASE("longformer's own maps of global rows start as copies, so that it equals the tied form") {
  for (const bool causal : {false, true}) {
    const Setup setup{.causal = causal};
    const at::Tensor x = random_tensor("x", {2, 48, 10});
    const SequenceMask mask = length_mask({48, 31}, 48, causal);
    const BuiltMixer own = untied(sizes(3, 5), setup, false), tied = make_mixer("longformer", sizes(3, 5), setup);
    CHECK(own.parameters().size() == 14);
    CHECK(tied.parameters().size() == 8);
    CHECK(max_difference(own(x, mask), tied(x, mask)) < 1e-10);
    CHECK(max_difference(untied(sizes(3, 5), setup)(x, mask), tied(x, mask)) > 1e-3);
  }
}

TEST_CASE("longformer with maps of its own equals its definition in loops") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 2, 3, 29, 61})
      for (const int64_t g : {0, 1, 3}) {
        INFO("causal " << causal << " n " << n << " g " << g);
        const BuiltMixer mixer = untied(sizes(g, 4, {1, 3}), {.causal = causal});
        const at::Tensor x = random_tensor("x", {2, n, 10});
        const auto project = [&](const std::string& name) {
          return at::linear(x, parameter(mixer, name + ".weight"), parameter(mixer, name + ".bias"))
              .detach()
              .view({2, n, 2, 5})
              .transpose(1, 2);
        };
        const Inputs local{project("query"), project("key"), project("value")};
        const Inputs rows =
            g == 0 ? local : Inputs{project("global_query"), project("global_key"), project("global_value")};
        for (const SequenceMask& mask : {SequenceMask{{}, causal}, length_mask({n, (n + 1) / 2}, n, causal)}) {
          const at::Tensor mixed = reference(local, rows, mask, g, 4, {1, 3});
          const at::Tensor expected = at::linear(mixed.transpose(1, 2).reshape({2, n, 10}),
                                                 parameter(mixer, "out.weight"), parameter(mixer, "out.bias"));
          CHECK(max_difference(mixer(x, mask), expected) < 1e-10);
        }
      }
}

TEST_CASE("longformer's own maps change global rows only") {
  const at::Tensor x = random_tensor("x", {1, 40, 10});
  const BuiltMixer mixer = untied(sizes(2, 4), {});
  const at::Tensor before = mixer(x);
  for (const std::string name : {"global_query.weight", "global_key.weight", "global_value.bias"}) {
    INFO(name);
    const at::Tensor kept = parameter(mixer, name).detach().clone();
    parameter(mixer, name).data().mul_(2);
    const at::Tensor change = (mixer(x) - before).abs().amax(-1)[0];
    CHECK(change.narrow(0, 0, 2).min().item<double>() > 1e-4);
    CHECK(change.narrow(0, 2, 38).max().item<double>() == 0);
    parameter(mixer, name).data().copy_(kept);
  }
}

TEST_CASE("longformer with maps of its own keeps the promises of every attention") {
  for (const bool causal : {false, true}) {
    INFO("causal " << causal);
    const BuiltMixer mixer = untied(sizes(2, 5), {.causal = causal});
    for (const int64_t n : {1, 3, 48, 77}) {
      const at::Tensor x = random_tensor("x", {3, n, 10});
      const OpCounter counter;
      (void)mixer(x, {{}, causal});
      CHECK(static_cast<double>(counter.counts().flops) == mixer.module->cost(3, n).flops_executed);
    }
    const SequenceMask mask = length_mask({48, 0, 1}, 48, causal);
    const at::Tensor x = random_tensor("x", {3, 48, 10}).requires_grad_(true);
    const at::Tensor noise =
        at::where(mask.key_valid.unsqueeze(-1), x.detach(), random_tensor("noise", {3, 48, 10}) * 1e6);
    const at::Tensor out = mixer(x, mask);
    CHECK(at::equal(valid_rows(mixer(noise, mask), mask), valid_rows(out, mask)));
    const OpCounter counter;
    (valid_rows(out, mask) * random_tensor("weights", {3, 48, 10})).sum().backward();
    CHECK(counter.counts().reads == 0);
    CHECK(x.grad().isfinite().all().item<bool>());
    CHECK(x.grad()[1].abs().max().item<double>() == 0);
    for (const auto& [key, value] : mixer.parameters()) {
      INFO(key);
      const double largest = value.grad().abs().max().item<double>();
      if (key.ends_with("key.bias")) CHECK(largest < 1e-10);
      else CHECK(largest > 1e-6);
      CHECK_FALSE(tensor_meaning(resolve("longformer"), key).empty());
    }
  }
}

TEST_CASE("longformer with maps of its own computes in float under autocast") {
  const BuiltMixer mixer = untied(sizes(2, 5), {.type = at::kFloat});
  const at::Tensor x = random_tensor("x", {1, 20, 10}).to(at::kFloat);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const ProbeRecorder recorder([](const std::string&) { return true; });
  const at::Tensor out = mixer(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(out.scalar_type() == at::kBFloat16);
  CHECK(recorder.kept().size() == 9);
  for (const auto& [name, tensor] : recorder.kept()) CHECK(tensor.scalar_type() == at::kFloat);
}

TEST_CASE("longformer has 16640 parameters a layer, and 12480 more with maps of its own") {
  const auto count = [](const Json& options) {
    int64_t result = 0;
    for (const auto& [key, value] : make_mixer("longformer", options, {.head_dim = 32, .max_len = 2048}).state())
      result += value.numel();
    return result;
  };
  CHECK(count(Json::object()) == 16640);
  CHECK(count({{"global_tied", false}}) == 16640 + 3 * (64 * 64 + 64));
  // Nobody would use them without global tokens.
  CHECK(count({{"global_tied", false}, {"global_tokens", 0}}) == 16640);
}

TEST_CASE("longformer with maps of its own is refused as a core, with the reason") {
  const Json own{{"global_tied", false}};
  CHECK_THROWS_WITH(make_core("longformer", own),
                    Catch::Contains("global_tied=false") && Catch::Contains("projections"));
  CHECK_THROWS_WITH(make_mixer("mrs-longformer", own), Catch::Contains("global_tied=false") && Catch::Contains("mrs"));
  CHECK_NOTHROW(make_mixer("mrs-longformer"));
  // Before anything is built.
  const auto check = [](const std::string& name, const Json& options) {
    check_buildable(resolve(name), full_options(resolve(name), options), 2, false);
  };
  CHECK_THROWS_WITH(check("mrs-longformer", own), Catch::Contains("global_tied=false"));
  CHECK_THROWS_WITH(check("longformer", sizes(1, 3, {1, 2, 3})), Catch::Contains("3 dilations"));
  CHECK_NOTHROW(check("longformer", own));
}

}  // namespace xformer::attention::longformer_test
