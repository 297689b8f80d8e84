// adamra and its ablations (attention-core 3.18): compressions, random routing, cost, refusals.
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "attention/support.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::adamra_options_test {

using namespace support;

const std::vector<std::string> kNames = {"adamra", "adamra-rand", "adamra-softmax", "adamra-elu"};

at::Tensor parameter(const BuiltMixer& mixer, const std::string& name) {
  return mixer.module->named_parameters()[name];
}

TEST_CASE("adamra's learned compressions start as the mean") {
  const at::Tensor x = random_tensor("x", {2, 40, 10});
  const auto run = [&](const std::string& compress) {
    return make_mixer("adamra", {{"rates", {2, 5}}, {"compress", compress}})(x);
  };
  CHECK(max_difference(run("projection"), run("mean")) < 1e-7);  // 1/5 starts as a float
  CHECK(max_difference(run("convolution"), run("mean")) < 1e-7);
  CHECK(max_difference(run("kmeans"), run("mean")) > 1e-3);
}

TEST_CASE("adamra's k-means equals three rounds of Lloyd's in loops") {
  const int64_t n = 22, rate = 4, clusters = 6;
  const SequenceMask mask = length_mask({22, 13}, n);
  const Json options = {{"rates", {rate}}, {"compress", "kmeans"}, {"proj", "shared"}, {"kernel", "elu"}};
  const BuiltMixer mixer = make_mixer("adamra", options),
                   plain = make_mixer("adamra-elu", {{"rates", {1}}, {"proj", "shared"}});
  const at::NoGradGuard no_grad;
  const at::Tensor x = random_tensor("x", {2, n, 10});
  const auto map = [&](const char* name, const at::Tensor& rows) {
    return at::linear(rows, parameter(mixer, std::string(name) + ".weight"),
                      parameter(mixer, std::string(name) + ".bias"));
  };
  const at::Tensor q = map("query", x), k = map("key", x), v = map("value", x), out = mixer(x, mask);
  for (int64_t b = 0; b < 2; ++b) {
    const int64_t valid = b == 0 ? 22 : 13, filled = (valid + rate - 1) / rate;
    std::vector<at::Tensor> centres;
    for (int64_t t = 0; t < filled; ++t)
      centres.push_back(k[b].narrow(0, t * rate, std::min(rate, valid - t * rate)).mean(0));
    std::vector<int64_t> nearest(static_cast<size_t>(valid));
    at::Tensor keys, values, count;
    for (int round = 0; round < 3; ++round) {
      keys = at::zeros({clusters, 10}, at::kDouble), values = at::zeros_like(keys),
      count = at::zeros({clusters, 1}, at::kDouble);
      for (int64_t j = 0; j < valid; ++j) {
        int64_t best = 0;
        for (int64_t t = 1; t < filled; ++t) {
          const auto distance = [&](int64_t c) {
            return (k[b][j] - centres[static_cast<size_t>(c)]).square().sum().item<double>();
          };
          if (distance(t) < distance(best)) best = t;
        }
        keys[best] += k[b][j], values[best] += v[b][j], count[best] += 1;
      }
      for (int64_t t = 0; t < filled; ++t)
        if (count[t].item<double>() > 0) centres[static_cast<size_t>(t)] = keys[t] / count[t];
    }
    const auto heads = [](const at::Tensor& rows) { return rows.view({1, -1, 2, 5}).transpose(1, 2); };
    const SequenceMask used{(count > 0).view({1, clusters})};
    const at::Tensor mixed =
        make_core("linear")(heads(q[b]), heads(keys / count.clamp_min(1)), heads(values / count.clamp_min(1)), used);
    CHECK(max_difference(map("out", mixed.transpose(1, 2).reshape({n, 10})).narrow(0, 0, valid),
                         out[b].narrow(0, 0, valid)) < 1e-10);
  }
  // A segment of one token is a cluster of one.
  const BuiltMixer single = make_mixer("adamra-elu", {{"rates", {1}}, {"proj", "shared"}, {"compress", "kmeans"}});
  CHECK(max_difference(single(x, mask), plain(x, mask)) < 1e-10);
}

// The heads that adamra-rand sends tokens to: values of head h are h + 1.
at::Tensor random_heads(const BuiltMixer& mixer, int64_t b, int64_t n) {
  const at::NoGradGuard no_grad;
  return (mixer(at::zeros({b, n, 4})).select(-1, 0)).round().to(at::kLong) - 1;
}

BuiltMixer labelled_mixer(uint64_t seed, int64_t layer, const std::shared_ptr<kernels::DropoutStream>& stream) {
  const Resolved attention = resolve("adamra-rand");
  BuildContext context = make_context({.heads = 1, .head_dim = 4, .layer = layer, .seed = seed});
  context.dropout_stream = stream;
  BuiltMixer mixer{{build_mixer(attention, full_options(attention, {{"kernel", "elu"}, {"rates", {1, 2, 3}}}), context),
                    context.shared}};
  const auto set = [&](const std::string& name, const at::Tensor& value) {
    parameter(mixer, name).data().copy_(value);
  };
  set("value.weight", at::zeros({4, 4})), set("value.bias", at::ones({4}));
  for (int64_t h = 0; h < 3; ++h) parameter(mixer, "head_value").data()[h].copy_(at::eye(4) * (h + 1));
  set("out.weight", at::eye(4)), set("out.bias", at::zeros({4}));
  return mixer;
}

TEST_CASE("adamra-rand draws heads from (seed, step, layer, token) in training, and by position in evaluation") {
  const auto heads = [](uint64_t seed, int64_t layer, int64_t step, int64_t first_row, int64_t b, bool training) {
    const auto stream = std::make_shared<kernels::DropoutStream>(seed);
    for (int64_t other = 0; other < layer; ++other) (void)labelled_mixer(seed, other, stream);
    const BuiltMixer mixer = labelled_mixer(seed, layer, stream);
    mixer.module->train(training);
    stream->set_step(step, first_row);
    return random_heads(mixer, b, 3000);
  };
  for (const bool training : {true, false}) {
    const at::Tensor first = heads(1, 0, 5, 0, 4, training);
    for (int64_t h = 0; h < 3; ++h)  // a deviation of 12000 draws is 0.0043
      CHECK((first[0] == h).to(at::kDouble).mean().item<double>() == Approx(1.0 / 3).margin(0.03));
    CHECK(at::equal(first, heads(1, 0, 5, 0, 4, training)));
    CHECK(at::equal(first.narrow(0, 2, 2), heads(1, 0, 5, 2, 2, training)));  // a micro-batch from row 2 on
    CHECK_FALSE(at::equal(first, heads(2, 0, 5, 0, 4, training)));
    CHECK_FALSE(at::equal(first, heads(1, 1, 5, 0, 4, training)));
    CHECK(at::equal(first, heads(1, 0, 6, 0, 4, training)) == !training);
    CHECK(at::equal(first[0], first[1]) == !training);
  }
}

TEST_CASE("adamra reports how many tokens went to each head, and reads nothing back at any length") {
  for (const std::string& name : kNames)
    for (const int64_t n : {1, 2, 7, 29, 93, 144, 315, 405, 1024, 1751}) {
      INFO(name << " n " << n);
      const BuiltMixer mixer = make_mixer(name, {}, {.dropout = 0.1, .type = at::kFloat});
      mixer.module->train();
      const at::Tensor x = random_tensor("x", {2, n, 10}).to(at::kFloat).requires_grad_(true);
      const SequenceMask mask = length_mask({n, (n + 1) / 2}, n);
      const ProbeRecorder recorder([](const std::string& probe) { return probe == "routing"; });
      const OpCounter counter;
      const at::Tensor out = mixer(x, mask);
      out.sum().backward();
      CHECK(counter.counts().reads == 0);
      CHECK(out.isfinite().all().item<bool>());
      CHECK(x.grad().isfinite().all().item<bool>());
      CHECK(at::equal(recorder.kept()[0].second.sum(1), mask.key_valid.sum(1)));
    }
}

TEST_CASE("adamra's parameters and FLOPs") {
  const auto count = [](const std::string& name, const Json& options) {
    int64_t sum = 0;
    for (const auto& [key, value] : make_mixer(name, options, {.head_dim = 32, .max_len = 2048}).parameters())
      sum += value.numel();
    return sum;
  };
  CHECK(count("adamra", {}) == 16640 + 3 * 3 * 4096 + 64 * 3);
  CHECK(count("adamra", {{"rates", {4, 32}}}) == 16640 + 3 * 2 * 4096 + 64 * 2);
  CHECK(count("adamra", {{"proj", "shared"}}) == 16640 + 64 * 3);
  CHECK(count("adamra-rand", {}) == 16640 + 3 * 3 * 4096);
  const auto cost = [](const std::string& name, const Json& options, int64_t n) {
    return make_mixer(name, options, {.head_dim = 32}).module->cost(2, n);
  };
  // 6 B N d^2 + 2 B N d H + sum over h of [4 B m d^2 + 2 B m d (d/S + 1)] + 2 B N d (d + d/S + 1) + 2 B N d^2.
  const double tokens = 2 * 2048, segments = 2 * (1024 + 256 + 64);
  const double frame = 8 * tokens * 4096 + 2 * tokens * 64 * 3 + 4 * segments * 4096;
  CHECK(cost("adamra", {}, 2048).flops_executed == frame + 2 * tokens * 4096 + 2 * (segments + tokens) * 64 * 33);
  CHECK(cost("adamra", {}, 2048).flops_pattern == cost("adamra", {}, 2048).flops_executed);
  CHECK(cost("adamra", {}, 4096).flops_executed == 2 * cost("adamra", {}, 2048).flops_executed);
  for (const std::string compress : {"kmeans", "convolution"})
    for (const std::string& name : kNames) {
      const BuiltMixer mixer = make_mixer(name, {{"compress", compress}});
      const OpCounter counter;
      (void)mixer(random_tensor("x", {2, 77, 10}));
      CHECK(static_cast<double>(counter.counts().flops) == mixer.module->cost(2, 77).flops_executed);
    }
}

TEST_CASE("adamra computes between its projections in float32 under autocast") {
  for (const std::string& name : kNames) {
    const BuiltMixer mixer = make_mixer(name, {}, {.type = at::kFloat});
    const at::Tensor x = random_tensor("x", {2, 20, 10}).to(at::kFloat), exact = mixer(x);
    const ProbeRecorder recorder([](const std::string&) { return true; });
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor out = mixer(x);
    CHECK(at::autocast::is_autocast_enabled(at::kCPU));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    CHECK(out.scalar_type() == at::kBFloat16);
    for (const auto& [key, tensor] : recorder.kept())
      if (tensor.is_floating_point()) CHECK(tensor.scalar_type() == at::kFloat);
    // Another head for a token near a tie is a large change, so only most tokens are compared.
    const at::Tensor change = (out.to(at::kFloat) - exact).abs().amax(-1).flatten();
    CHECK(std::get<0>(change.sort())[30].item<double>() < 0.05);
  }
}

TEST_CASE("adamra refuses sub-heads that do not divide its width, and a decorator") {
  CHECK_THROWS_WITH(make_mixer("adamra", {{"sub_heads", 3}}),
                    "attention.sub_heads: expected a number that divides the width 10, got 3");
  CHECK_THROWS_WITH(resolve("mrs-adamra"), Catch::Contains("owns its projections"));
}

}  // namespace xformer::attention::adamra_options_test
