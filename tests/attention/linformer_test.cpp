// linformer (attention-core 3.9).
#include <map>

#include "attention/multi_head.h"
#include "attention/support.h"

namespace xformer::attention::linformer_test {

using namespace support;

// e and f [h or 1, k, N_max]; the equations row by row.
at::Tensor reference(const Inputs& in, const SequenceMask& mask, const at::Tensor& e, const at::Tensor& f) {
  const int64_t b = in.q.size(0), h = in.q.size(1), n = in.k.size(2), d = in.q.size(3), rows = e.size(1);
  at::Tensor k = at::zeros({b, h, rows, d}, at::kDouble), v = at::zeros({b, h, rows, d}, at::kDouble);
  for (int64_t s = 0; s < b; ++s)
    for (int64_t g = 0; g < h; ++g)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < n; ++j) {
          if (!mask.all_valid() && !mask.key_valid[s][j].item<bool>()) continue;
          k[s][g][r] += e[e.size(0) == 1 ? 0 : g][r][j] * in.k[s][g][j];
          v[s][g][r] += f[f.size(0) == 1 ? 0 : g][r][j] * in.v[s][g][j];
        }
  return dense_softmax({in.q, k, v});
}

at::Tensor parameter(const BuiltCore& core, const std::string& name) {
  for (const auto& [key, value] : core.parameters())
    if (key == name) return value.detach();
  FAIL("no parameter " << name);
  return {};
}

TEST_CASE("linformer equals its equation in loops for every way of sharing") {
  const Inputs in = random_inputs(2, 2, 12, 5);
  for (const std::string sharing : {"mlpen", "layerwise", "kv", "headwise", "none"})
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{12, 7}, {1, 12}}) {
      INFO(sharing);
      const BuiltCore core = make_core("linformer", {{"projected_len", 4}, {"sharing", sharing}}, {.max_len = 15});
      const bool all_layers = sharing == "mlpen" || sharing == "layerwise",
                 two = sharing == "headwise" || sharing == "none";
      const at::Tensor e = parameter(core, all_layers ? "shared.linformer_e" : "e"), f = two ? parameter(core, "f") : e;
      CHECK(e.size(0) == (sharing == "mlpen" || sharing == "none" ? 2 : 1));
      const SequenceMask mask = length_mask(lengths, 12);
      CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                           valid_rows(reference(in, mask, e, f), mask)) < 1e-10);
      const Inputs one = random_inputs(2, 2, 1, 5);
      CHECK(max_difference(core(one.q, one.k, one.v), reference(one, {}, e, f)) < 1e-10);
    }
}

TEST_CASE("linformer's layers share one projection, listed once") {
  const BuiltCore first = make_core("linformer", {{"projected_len", 4}});
  const BuiltCore second = make_core("linformer", {{"projected_len", 4}}, {.layer = 1, .shared = first.shared});
  CHECK(first.shared->parameters().size() == 1);
  CHECK(first.shared->parameters()[0].sizes() == at::IntArrayRef({2, 4, 48}));
  CHECK(second.module->parameters().empty());
  first.shared->parameters()[0].data().zero_();
  const Inputs in = random_inputs(1, 2, 8, 5);
  CHECK(second(in.q, in.k, in.v).abs().max().item<double>() == 0);
}

TEST_CASE("linformer golden numbers") {
  const BuiltCore core = make_core("linformer", {{"projected_len", 2}}, {.heads = 1, .head_dim = 1, .max_len = 2});
  // E = [[1, 0], [1, 1]] makes keys 0, ln 3 into 0, ln 3 and values 4, 8 into 4, 12; weights 1/4 and 3/4: 1 + 9 = 10.
  core.shared->parameters()[0].data().copy_(at::tensor({1., 0., 1., 1.}).view({1, 2, 2}));
  CHECK(core(column({1, 1}), column({0, std::log(3.0)}), column({4, 8}))[0][0][0][0].item<double>() == Approx(10));
}

TEST_CASE("linformer with the identity as projection equals softmax") {
  const Inputs in = random_inputs(2, 2, 16, 5);
  const BuiltCore core = make_core("linformer", {{"projected_len", 99}}, {.max_len = 16});
  const at::Tensor e = core.shared->parameters()[0].data();
  CHECK(e.sizes() == at::IntArrayRef({2, 16, 16}));
  e.copy_(at::eye(16, at::kDouble));
  CHECK(max_difference(core(in.q, in.k, in.v), dense_softmax(in)) < 1e-10);
}

TEST_CASE("linformer's map over the sequence has at most rank k") {
  Inputs in = random_inputs(1, 1, 8, 8);
  in.v = at::eye(8, at::kDouble).view({1, 1, 8, 8});  // then the output is the map itself
  const BuiltCore core = make_core("linformer", {{"projected_len", 3}}, {.heads = 1, .head_dim = 8, .max_len = 8});
  const at::Tensor singular = at::linalg_svdvals(core(in.q, in.k, in.v)[0][0].detach());
  CHECK(singular[2].item<double>() > 1e-3);
  CHECK(singular[3].item<double>() < 1e-12);
}

TEST_CASE("linformer is not blind to a shift, as softmax is") {
  const Inputs in = random_inputs(1, 2, 16, 5);
  const auto shift_error = [&](const BuiltCore& core) {
    const auto roll = [](const at::Tensor& x) { return x.roll(1, 2); };
    return max_difference(core(roll(in.q), roll(in.k), roll(in.v)), roll(core(in.q, in.k, in.v)));
  };
  CHECK(shift_error(make_core("softmax")) < 1e-12);
  CHECK(shift_error(make_core("linformer", {{"projected_len", 4}})) > 1e-2);
}

TEST_CASE("linformer starts with variance 1/k") {
  const at::Tensor e =
      make_core("linformer", {{"projected_len", 32}}, {.max_len = 512}).shared->parameters()[0].detach();
  CHECK(e.var().item<double>() == Approx(1.0 / 32).epsilon(0.03));  // 32768 numbers: 3 deviations are 2.3 %
}

TEST_CASE("linformer with keys as values has one map and one projection for both", "[share_kv]") {
  const Json own{{"projected_len", 4}, {"sharing", "kv"}, {"share_kv", true}};
  const BuiltMixer mixer = make_mixer("linformer", own, {.max_len = 12});
  std::map<std::string, at::Tensor> of;
  for (const auto& [name, value] : mixer.parameters()) of[name] = value.detach();
  CHECK(of.size() == 7);  // weight and bias of query, key and out, and E
  REQUIRE(of.contains("core.e"));
  const at::Tensor x = random_tensor("x", {2, 12, 10});
  const SequenceMask mask = length_mask({12, 7}, 12);
  const auto heads = [&](const std::string& name) {  // columns 0 .. 4 are head 0
    const at::Tensor rows = at::matmul(x, of[name + ".weight"].t()) + of[name + ".bias"];
    return at::stack({rows.narrow(2, 0, 5), rows.narrow(2, 5, 5)}, 1);
  };
  const at::Tensor mixed =
      valid_rows(reference({heads("query"), heads("key"), heads("key")}, mask, of["core.e"], of["core.e"]), mask);
  const at::Tensor wanted =
      at::matmul(at::cat({mixed.select(1, 0), mixed.select(1, 1)}, -1), of["out.weight"].t()) + of["out.bias"];
  CHECK(max_difference(mixer(x, mask), wanted) < 1e-10);
  // Three maps of 10 x 10 for n = 12 tokens; E K alone, scores and mixing of n k 5 products each, for both heads.
  CHECK(mixer.module->cost(1, 12).flops_executed == 2.0 * (3 * 10 * 10 * 12 + 2 * 3 * 12 * 4 * 5));

  CHECK_THROWS_WITH(make_mixer("mrs-linformer", own), Catch::Matchers::Contains("attention.share_kv"));
  // Around a core there would be a map of values, which it would not read.
  const Resolved linformer = resolve("linformer");
  CHECK_THROWS_WITH(build_cross(linformer, full_options(linformer, own), make_context({.max_len = 12})),
                    Catch::Matchers::Contains("attention.share_kv: attention to another sequence"));
  CHECK_THROWS_WITH(make_mixer("linformer", {{"sharing", "none"}, {"share_kv", true}}),
                    Catch::Matchers::Contains("mlpen, layerwise or kv, got none"));
}

TEST_CASE("linformer refuses what is longer than it was built for") {
  const Inputs in = random_inputs(1, 2, 20, 5);
  CHECK_THROWS_AS(make_core("linformer", {}, {.max_len = 19})(in.q, in.k, in.v), UserError);
}

}  // namespace xformer::attention::linformer_test
