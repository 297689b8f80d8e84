// adamra, adamra-rand, adamra-softmax and adamra-elu (attention-core 3.18): equations, routing and limits.
#include <torch/autograd.h>

#include <algorithm>

#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::adamra_test {

using namespace support;

const std::vector<std::string> kNames = {"adamra", "adamra-rand", "adamra-softmax", "adamra-elu"};

at::Tensor parameter(const BuiltMixer& mixer, const std::string& name) {
  const at::Tensor* found = mixer.module->named_parameters().find(name);
  return found == nullptr ? at::Tensor() : *found;
}

// Masked mean, or weighted sum, of the tokens of segment t: x [n,d], filter [l, 1 or d] or undefined.
at::Tensor segment(const at::Tensor& x, const SequenceMask& mask, int64_t sample, int64_t t, int64_t rate,
                   const at::Tensor& filter, int64_t& count) {
  at::Tensor sum = at::zeros({x.size(1)}, at::kDouble);
  count = 0;
  for (int64_t j = t * rate; j < std::min(x.size(0), (t + 1) * rate); ++j) {
    if (!mask.all_valid() && !mask.key_valid[sample][j].item<bool>()) continue;
    ++count;
    sum = sum + (filter.defined() ? x[j] * filter[j - t * rate] : x[j]);
  }
  return filter.defined() ? sum : sum / std::max<double>(static_cast<double>(count), 1);
}

struct Settings {
  std::vector<int64_t> rates = {2, 5, 8};
  int64_t sub_heads = 2;
  std::string kernel = "relu", router_gradient = "straight-through", proj = "per-head", compress = "mean";

  [[nodiscard]] Json json(bool with_kernel = true) const {
    Json result = {{"rates", rates},
                   {"sub_heads", sub_heads},
                   {"router_gradient", router_gradient},
                   {"proj", proj},
                   {"compress", compress}};
    if (with_kernel) result["kernel"] = kernel;
    return result;
  }
};

// One token at a time, from the equations; differentiable.
at::Tensor reference(const BuiltMixer& mixer, const at::Tensor& x, const SequenceMask& mask, const Settings& with) {
  const auto map = [&](const std::string& name, const at::Tensor& rows) {
    return at::linear(rows, parameter(mixer, name + ".weight"), parameter(mixer, name + ".bias"));
  };
  const at::Tensor router = parameter(mixer, "router.weight"), filters = parameter(mixer, "filters");
  const int64_t n = x.size(1), d = x.size(2), width = d / with.sub_heads;
  const auto phi = [&](const at::Tensor& u) { return with.kernel == "relu" ? at::relu(u) : at::elu(u) + 1; };
  std::vector<at::Tensor> samples;
  for (int64_t b = 0; b < x.size(0); ++b) {
    const at::Tensor q = map("query", x[b]), k = map("key", x[b]), v = map("value", x[b]);
    std::vector<std::vector<at::Tensor>> keys, values;  // [h][t] of segments that hold a token
    int64_t first = 0;
    for (size_t h = 0; h < with.rates.size(); ++h) {
      const int64_t rate = with.rates[h];
      keys.emplace_back(), values.emplace_back();
      for (int64_t t = 0; t * rate < n; ++t) {
        int64_t count = 0;
        const auto filter = [&](int64_t which) {
          return filters.defined() ? filters[which].narrow(0, first, rate) : at::Tensor();
        };
        at::Tensor key = segment(k, mask, b, t, rate, filter(0), count),
                   value = segment(v, mask, b, t, rate, filter(1), count);
        if (count == 0) continue;
        if (with.proj == "per-head") {
          key = at::mv(parameter(mixer, "head_key")[static_cast<int64_t>(h)], key);
          value = at::mv(parameter(mixer, "head_value")[static_cast<int64_t>(h)], value);
        }
        keys.back().push_back(key), values.back().push_back(value);
      }
      first += rate;
    }
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < n; ++i) {
      if (!mask.all_valid() && !mask.key_valid[b][i].item<bool>()) {
        rows.push_back(at::zeros({d}, at::kDouble));
        continue;
      }
      const at::Tensor p = at::softmax(at::mv(router, q[i]), -1);
      size_t h = 0;
      for (size_t other = 1; other < with.rates.size(); ++other)
        if (p[static_cast<int64_t>(other)].item<double>() > p[static_cast<int64_t>(h)].item<double>()) h = other;
      const auto head = static_cast<int64_t>(h);
      const at::Tensor query = with.proj == "per-head" ? at::mv(parameter(mixer, "head_query")[head], q[i]) : q[i];
      std::vector<at::Tensor> parts;
      for (int64_t s = 0; s < with.sub_heads; ++s) {
        const auto own = [&](const at::Tensor& u) { return u.narrow(0, s * width, width); };
        at::Tensor sum = at::zeros({width}, at::kDouble);
        at::Tensor total = at::full({}, with.kernel == "softmax" ? 0 : 1e-6, at::kDouble);
        for (size_t t = 0; t < keys[h].size(); ++t) {
          const at::Tensor weight =
              with.kernel == "softmax"
                  ? at::exp(at::dot(own(query), own(keys[h][t])) / std::sqrt(static_cast<double>(width)))
                  : at::dot(phi(own(query)), phi(own(keys[h][t])));
          sum = sum + weight * own(values[h][t]);
          total = total + weight;
        }
        parts.push_back(sum / total);
      }
      const at::Tensor gate = with.router_gradient == "none"   ? at::ones({}, at::kDouble)
                              : with.router_gradient == "gate" ? p[head]
                                                               : p[head] / p[head].detach();
      rows.push_back(at::cat(parts) * gate);
    }
    samples.push_back(at::stack(rows));
  }
  return map("out", at::stack(samples));
}

void check_against_reference(const std::string& name, const Json& options, const Settings& with, int64_t n,
                             const SequenceMask& mask, bool gradients) {
  const BuiltMixer mixer = make_mixer(name, options, {.head_dim = 4});
  const at::Tensor x = random_tensor("x", {2, n, 8}).requires_grad_(true);
  const at::Tensor out = mixer(x, mask), wanted = reference(mixer, x, mask, with);
  CHECK(max_difference(out, wanted) < 1e-10);
  if (!gradients) return;
  const at::Tensor factors = random_tensor("factors", out.sizes());
  std::vector<at::Tensor> inputs{x};
  for (const auto& [key, value] : mixer.parameters()) inputs.push_back(value);
  const auto of = [&](const at::Tensor& y) {
    return torch::autograd::grad({(y * factors).sum()}, inputs, {}, std::nullopt, false, /*allow_unused=*/true);
  };
  const auto got = of(out), meant = of(wanted);
  for (size_t i = 0; i < inputs.size(); ++i) {
    INFO("gradient " << i);
    REQUIRE(got[i].defined() == meant[i].defined());
    if (got[i].defined()) CHECK(max_difference(got[i], meant[i]) < 1e-10);
  }
}

TEST_CASE("adamra equals its equations token by token, in values and gradients, for every option and kernel") {
  for (const std::string kernel : {"relu", "elu", "softmax"})
    for (const std::string compress : {"mean", "projection", "convolution"})
      for (const std::string proj : {"per-head", "shared"}) {
        Settings with{.kernel = kernel, .proj = proj, .compress = compress};
        with.router_gradient = proj == "shared" ? "gate" : "straight-through";
        INFO(with.json().dump());
        check_against_reference("adamra", with.json(), with, 19, length_mask({19, 11}, 19), true);
        check_against_reference("adamra", with.json(), with, 7, {}, false);
        check_against_reference("adamra", with.json(), with, 1, {}, true);
        check_against_reference("adamra", with.json(), with, 6, length_mask({1, 0}, 6), false);
        if (kernel != "relu")
          check_against_reference("adamra-" + kernel, with.json(false), with, 19, length_mask({3, 19}, 19), false);
      }
  Settings none{.router_gradient = "none"};
  check_against_reference("adamra", none.json(), none, 19, length_mask({19, 11}, 19), true);
}

TEST_CASE("adamra equals its equations for every setting of the paper's Table 4 and for its defaults") {
  for (const std::vector<int64_t>& rates : std::vector<std::vector<int64_t>>{{4, 32},
                                                                             {8, 16, 32},
                                                                             {2, 8, 32},
                                                                             {2, 4, 8, 16},
                                                                             {4, 8, 16, 32},
                                                                             {8, 16, 32, 64},
                                                                             {2, 4, 8, 16, 32, 64},
                                                                             {2, 4, 8, 16, 32, 64, 128},
                                                                             {2, 2, 2},
                                                                             {4, 4, 4}}) {
    const Settings with{.rates = rates};
    INFO(with.json().dump());
    check_against_reference("adamra", with.json(), with, 70, length_mask({70, 41}, 70), false);
  }
  check_against_reference("adamra", Json::object(), {.rates = {2, 8, 32}}, 45, length_mask({45, 33}, 45), false);
}

TEST_CASE("adamra golden number") {
  const BuiltMixer mixer =
      make_mixer("adamra", {{"rates", {2}}, {"sub_heads", 1}, {"proj", "shared"}}, {.heads = 1, .head_dim = 3});
  // Columns of x are q, k and v; each map picks its own.
  for (const auto& [name, column] : {std::pair{"query", 0}, {"key", 1}, {"value", 2}, {"out", 0}}) {
    parameter(mixer, std::string(name) + ".bias").data().zero_();
    parameter(mixer, std::string(name) + ".weight").data().zero_();
    parameter(mixer, std::string(name) + ".weight").data()[0][column] = 1;
  }
  // Means of keys 1 3 | 2 0 are 2 and 1, of values 4 8 | 1 1 they are 6 and 1: (2 * 6 + 1 * 1) / (2 + 1).
  const at::Tensor x = at::tensor({1., 1., 4., 1., 3., 8., -1., 2., 1., 5., 0., 1.}, at::kDouble).view({1, 4, 3});
  const at::Tensor out = mixer(x).select(-1, 0).flatten();
  CHECK(max_difference(out, at::tensor({13 / (3 + 1e-6), 13 / (3 + 1e-6), 0., 65 / (15 + 1e-6)}, at::kDouble)) < 1e-12);
}

// q, k, v [b,S,n,d/S] of the only head, by composed maps.
Inputs composed(const BuiltMixer& mixer, const at::Tensor& x, int64_t sub_heads) {
  const auto rows = [&](const std::string& name) {
    const at::Tensor first = at::linear(x, parameter(mixer, name + ".weight"), parameter(mixer, name + ".bias"));
    return at::linear(first, parameter(mixer, "head_" + name)[0])
        .view({x.size(0), x.size(1), sub_heads, x.size(2) / sub_heads})
        .transpose(1, 2);
  };
  return {rows("query"), rows("key"), rows("value")};
}

TEST_CASE("adamra with one head of full resolution equals linear with elu, and softmax with softmax") {
  const at::Tensor x = random_tensor("x", {2, 20, 10});
  const SequenceMask mask = length_mask({20, 13}, 20);
  for (const std::string name : {"adamra-elu", "adamra-softmax"}) {
    const BuiltMixer mixer = make_mixer(name, {{"rates", {1}}});
    const at::NoGradGuard no_grad;
    const Inputs in = composed(mixer, x, 2);
    const at::Tensor core = name == "adamra-elu" ? make_core("linear")(in.q, in.k, in.v, mask)
                                                 : make_core("softmax")(in.q, in.k, in.v, mask);
    const at::Tensor wanted = at::linear(valid_rows(core, mask).transpose(1, 2).reshape({2, 20, 10}),
                                         parameter(mixer, "out.weight"), parameter(mixer, "out.bias"));
    CHECK(max_difference(mixer(x, mask), wanted) < 1e-10);
  }
}

TEST_CASE("adamra with equal maps and rates in all heads does not depend on the routing") {
  for (const std::string& name : kNames) {
    const BuiltMixer mixer = make_mixer(name, {{"rates", {4, 4, 4}}});
    for (const std::string maps : {"head_query", "head_key", "head_value"}) {
      const at::Tensor all = parameter(mixer, maps).data();
      all.copy_(all[1].clone().expand_as(all));
    }
    const at::Tensor x = random_tensor("x", {2, 30, 10}), out = mixer(x);
    const auto reroute = [&](uint64_t seed) {
      const BuiltMixer other = make_mixer(name, {{"rates", {4, 4, 4}}}, {.seed = seed});
      const std::string routes = name == "adamra-rand" ? "fixed_routes" : "router.weight";
      for (const auto& [key, value] : mixer.state())
        for (const auto& [other_key, other_value] : other.state())
          if (key == routes && other_key == routes) value.data().copy_(other_value.data());
    };
    reroute(9);
    CHECK(max_difference(mixer(x), out) < 1e-12);
    parameter(mixer, "head_value").data()[0].mul_(2);
    CHECK(max_difference(mixer(x), out) > 1e-3);
  }
}

TEST_CASE("changing the maps of one head changes exactly the tokens routed to it") {
  for (const std::string& name : kNames) {
    const BuiltMixer mixer = make_mixer(name, {{"rates", {2, 5, 8}}});
    const at::Tensor x = random_tensor("x", {2, 40, 10}), out = mixer(x);
    at::Tensor touched = at::zeros({2, 40}, at::kLong);
    for (int64_t h = 0; h < 3; ++h) {
      const at::Tensor maps = parameter(mixer, "head_value").data();
      maps[h].mul_(1.5);
      const at::Tensor changed = (mixer(x) - out).abs().amax(-1) > 0;
      maps[h].div_(1.5);
      touched += changed;
      const ProbeRecorder recorder([](const std::string& probe) { return probe == "routing"; });
      (void)mixer(x);
      CHECK(at::equal(recorder.kept()[0].second.select(1, h), changed.sum(1)));
    }
    CHECK((touched == 1).all().item<bool>());  // every token belongs to one head
  }
}

TEST_CASE("adamra's router learns by default with the paper's values, and not at all with none") {
  const at::Tensor x = random_tensor("x", {2, 40, 10});
  const auto run = [&](const std::string& gradient) {
    const BuiltMixer mixer = make_mixer("adamra", {{"router_gradient", gradient}});
    const at::Tensor out = mixer(x);
    out.square().sum().backward();
    return std::pair{out.detach(), parameter(mixer, "router.weight").grad()};
  };
  const auto through = run("straight-through"), none = run("none"), gate = run("gate");
  CHECK(at::equal(through.first, none.first));
  CHECK(through.second.abs().max().item<double>() > 1e-4);
  CHECK_FALSE(none.second.defined());
  CHECK(gate.second.abs().max().item<double>() > 1e-4);
  CHECK(max_difference(gate.first, none.first) > 1e-3);
}

TEST_CASE("adamra without a positive query feature gives zero") {
  const BuiltMixer mixer = make_mixer("adamra");
  parameter(mixer, "head_query").data().zero_();
  const at::Tensor bias = parameter(mixer, "out.bias").expand({1, 9, 10});
  CHECK(max_difference(mixer(random_tensor("x", {1, 9, 10})), bias) == 0);
}

}  // namespace xformer::attention::adamra_test
