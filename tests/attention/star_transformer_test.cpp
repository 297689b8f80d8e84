// star-transformer (attention-third 4).
#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::star_transformer_test {

using namespace support;

// One node's attention over rows of keys [k,m], by parameters of `part`.
at::Tensor node(const BuiltMixer& layer, const std::string& part, const at::Tensor& query, const at::Tensor& keys) {
  const auto parameters = layer.module->named_parameters();
  const auto map = [&](const std::string& name, const at::Tensor& rows) {
    return at::linear(rows, parameters[part + "." + name + ".weight"], parameters[part + "." + name + ".bias"]);
  };
  const at::Tensor q = map("query", query).view({2, 5}), k = map("key", keys).view({-1, 2, 5}),
                   v = map("value", keys).view({-1, 2, 5});
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < 2; ++h)
    heads.push_back(at::matmul(at::softmax(at::mv(k.select(1, h), q[h]) / std::sqrt(5.0), 0), v.select(1, h)));
  return map("out", at::cat(heads));
}

at::Tensor norm(const BuiltMixer& layer, const std::string& part, const at::Tensor& x, double epsilon) {
  const auto parameters = layer.module->named_parameters();
  const at::Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + epsilon).sqrt() * parameters[part + "_norm_weight"] +
         parameters[part + "_norm_bias"];
}

struct Star {
  at::Tensor h, s;  // [n_b,m], [m]
};

// One layer over the valid satellites `places` of one sample, in loops over nodes.
Star reference(const BuiltMixer& layer, const Star& in, const at::Tensor& e, const std::vector<int64_t>& places,
               bool code, bool closed) {
  const auto count = static_cast<int64_t>(places.size());
  const auto after = [&](const std::string& part, const at::Tensor& x) {
    return code ? at::leaky_relu(x, 0.01) : norm(layer, part, at::relu(x), 1e-5);
  };
  const auto own = [&](int64_t i) { return code ? norm(layer, "ring", in.h[i], 1e-6) : in.h[i]; };
  Star out{at::zeros_like(in.h), {}};
  for (int64_t i = 0; i < count; ++i) {
    std::vector<at::Tensor> keys{own(i), e[i], in.s};
    const auto at_place = [&](int64_t place) {
      for (int64_t j = 0; j < count; ++j)
        if (places[static_cast<size_t>(j)] == place) keys.push_back(own(j));
    };
    const int64_t place = places[static_cast<size_t>(i)];
    at_place(place - 1), at_place(place + 1);
    const bool far = count > 1 && places.back() - places.front() > 1;
    if (closed && far && i == 0) keys.push_back(own(count - 1));
    if (closed && far && i == count - 1) keys.push_back(own(0));
    out.h[i].copy_(after("ring", node(layer, "ring", own(i), at::stack(keys))));
  }
  out.s = after("relay", node(layer, "relay", in.s, at::cat({in.s.unsqueeze(0), out.h})));
  return out;
}

BuiltMixer make_star(const Json& options, int64_t layer = 0) {
  return make_mixer("star-transformer", options, {.layer = layer});
}

TEST_CASE("two layers of the star equal their equations node by node, in every style, for ragged lengths and none") {
  for (const std::string style : {"paper", "code"})
    for (const std::string ring : {"open", "closed"})
      for (const int64_t n : {1, 2, 3, 4, 13}) {
        INFO(style << " " << ring << " n " << n);
        const Json options{{"style", style}, {"ring", ring}};
        const BuiltMixer first = make_star(options), second = make_star(options, 1);
        const at::Tensor x = random_tensor("x", {3, n, 10});
        // All, some with a hole, and the relay alone.
        SequenceMask mask = length_mask({n, n, 1}, n);
        if (n == 13) mask.key_valid[1][4] = false, mask.key_valid[1][12] = false;
        Carry carry;
        const at::Tensor middle = first.module->forward(x, mask, carry);
        const at::Tensor out = second.module->forward(middle, mask, carry);
        for (int64_t b = 0; b < 3; ++b) {
          std::vector<int64_t> places;
          for (int64_t i = 1; i < n; ++i)
            if (mask.key_valid[b][i].item<bool>()) places.push_back(i);
          const at::Tensor rows = at::tensor(places, at::kLong), e = x[b].index_select(0, rows);
          const Star start{e, x[b][0] + e.sum(0) / std::max<double>(1, static_cast<double>(places.size()))};
          const Star one = reference(first, start, e, places, style == "code", ring == "closed");
          const Star two = reference(second, one, e, places, style == "code", ring == "closed");
          CHECK(max_difference(middle[b].index_select(0, rows), one.h) < 1e-10);
          CHECK(max_difference(middle[b][0], one.s) < 1e-10);
          CHECK(max_difference(out[b].index_select(0, rows), two.h) < 1e-10);
          CHECK(max_difference(out[b][0], two.s) < 1e-10);
        }
      }
}

TEST_CASE("a relay that asks nothing reads the mean, and a closed ring rolls with its tokens") {
  const BuiltMixer star = make_star({});
  auto parameters = star.module->named_parameters();
  parameters["relay.query.weight"].data().zero_();
  parameters["relay.query.bias"].data().zero_();
  const at::Tensor x = random_tensor("x", {1, 8, 10});
  const at::Tensor out = star(x)[0];
  const at::Tensor start = x[0][0] + x[0].narrow(0, 1, 7).mean(0);
  const at::Tensor mean = at::cat({start.unsqueeze(0), out.narrow(0, 1, 7)}).mean(0);
  const at::Tensor value = at::linear(mean, parameters["relay.value.weight"], parameters["relay.value.bias"]);
  const at::Tensor meant = norm(
      star, "relay", at::relu(at::linear(value, parameters["relay.out.weight"], parameters["relay.out.bias"])), 1e-5);
  CHECK(max_difference(out[0], meant) < 1e-10);

  const BuiltMixer ring = make_star({{"ring", "closed"}}), open = make_star({});
  const auto rolled = [](const at::Tensor& rows) {  // the first row stays
    return at::cat({rows.narrow(1, 0, 1), rows.narrow(1, 1, 7).roll({3}, {1})}, 1);
  };
  CHECK(max_difference(ring(rolled(x)), rolled(ring(x))) < 1e-10);
  CHECK(max_difference(open(rolled(x)), rolled(open(x))) > 1e-4);
}

TEST_CASE("in one layer a token reads its neighbours, and others through the relay alone") {
  const BuiltMixer star = make_star({});
  at::Tensor x = random_tensor("x", {1, 12, 10}).requires_grad_(true);
  const auto moved = [&](const at::Tensor& out) {
    x.mutable_grad() = at::Tensor();
    out.select(1, 5).square().sum().backward();
    return x.grad()[0].abs().amax(-1);
  };
  // The relay as it is before the mean of the tokens is added does not move with them.
  const BuiltMixer second = make_star({}, 1);
  const auto apart = [&] {
    Carry carry{{"star/embedding", x.narrow(1, 1, 11).detach()}};
    return second.module->forward(x, {}, carry);
  };
  const at::Tensor near = moved(apart()), all = moved(star(x));
  for (int64_t i = 1; i < 12; ++i) {
    INFO(i);
    CHECK((near[i].item<double>() > 1e-9) == (std::abs(i - 5) <= 1));
    CHECK(all[i].item<double>() > 0);
  }
}

TEST_CASE("the star has the parameters and the products that it states, and no causal form") {
  CHECK(parameters_of("star-transformer") == 33536);
  CHECK(parameters_of("star-transformer", {{"style", "code"}}) == 33408);
  CHECK(make_star({}).module->cost(3, 1).flops_executed > 0);
  CHECK_THROWS_WITH(make_mixer("star", {}, {.causal = true}), Catch::Matchers::Contains("causal"));
  CHECK(prefix_tokens(resolve("star"), Json::object()) == 1);
}

}  // namespace xformer::attention::star_transformer_test
