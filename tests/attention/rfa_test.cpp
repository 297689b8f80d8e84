// rfa-gaussian and rfa-arccos (attention-third 10).
#include "attention/shared/kernel_sums.h"
#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::rfa_test {

using namespace support;

const std::vector<std::string> kNames{"rfa-gaussian", "rfa-arccos"};

at::Tensor buffer(const Built<AttentionCore>& core, const std::string& name) {
  return core.shared->named_buffers()["rfa_layer0_" + name].to(at::kDouble);
}

// phi [b,h,n,f] by the equations.
at::Tensor features(const std::string& name, const at::Tensor& x, const at::Tensor& omega, const at::Tensor& sigma) {
  const at::Tensor unit = x / (x.square().sum(-1, true) + 1e-6).sqrt();
  const at::Tensor y = at::einsum("bhnd,hd,rd->bhnr", {unit, sigma, omega});
  const at::Tensor phi = name == "rfa-arccos" ? y.clamp_min(0) : at::cat({y.sin(), y.cos()}, -1);
  return phi / std::sqrt(static_cast<double>(omega.size(0)));
}

// The kernel over all pairs and the floor of the denominator, in loops.
at::Tensor reference(const std::string& name, const Inputs& in, const SequenceMask& mask, const at::Tensor& phi_q,
                     const at::Tensor& phi_k) {
  const at::Tensor kernel = at::matmul(phi_q, phi_k.transpose(-1, -2));
  at::Tensor allowed = at::ones({in.q.size(0), 1, in.q.size(2), in.k.size(2)}, at::kDouble);
  if (!mask.all_valid()) allowed = allowed * mask.key_valid.unsqueeze(1).unsqueeze(1).to(at::kDouble);
  if (mask.causal) allowed = allowed.tril();
  const at::Tensor weights = kernel * allowed, sums = weights.sum(-1, true);
  at::Tensor divisor = sums + 1e-7;
  if (name == "rfa-gaussian") {
    divisor = sums.clone();
    double* const values = divisor.data_ptr<double>();
    for (int64_t i = 0; i < divisor.numel(); ++i)
      if (std::abs(values[i]) < 1e-3) values[i] = values[i] < 0 ? -1e-3 : 1e-3;
  }
  return valid_rows(at::matmul(weights, in.v) / divisor, mask);
}

TEST_CASE("random feature attention equals its kernel over all pairs, for ragged lengths and length 1") {
  for (const std::string& name : kNames)
    for (const bool causal : {false, true})
      for (const int64_t n : {1, 2, 40, 93}) {
        INFO(name << " causal " << causal << " n " << n);
        const Inputs in = random_inputs(2, 2, n, 5);
        const BuiltCore core = make_core(name, {{"features", 12}}, {.causal = causal});
        const at::Tensor sigma = core.module->named_parameters()["sigma"], omega = buffer(core, "evaluation");
        sigma.data().copy_(random_tensor("sigma", {2, 5}).abs() + 0.5);
        const at::Tensor phi_q = features(name, in.q, omega, sigma.detach()),
                         phi_k = features(name, in.k, omega, sigma.detach());
        for (const SequenceMask& mask : ragged_masks(n, causal))
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                               reference(name, in, mask, phi_q, phi_k)) < 1e-10);
      }
}

TEST_CASE("its features estimate the kernels that the paper names, at sigma 1, without bias") {
  const at::Tensor q = random_tensor("q", {1, 1, 6, 5}), k = random_tensor("k", {1, 1, 6, 5});
  const auto unit = [](const at::Tensor& x) { return x / x.norm(2, at::IntArrayRef({-1}), true); };
  const at::Tensor cosine = at::matmul(unit(q), unit(k).transpose(-1, -2)), angle = at::acos(cosine);
  for (const std::string& name : kNames) {
    const at::Tensor meant =
        name == "rfa-gaussian" ? at::exp(cosine - 1) : (at::sin(angle) + (M_PI - angle) * cosine) / (2 * M_PI);
    constexpr int64_t kDraws = 200;
    at::Tensor sum = at::zeros_like(meant), squares = at::zeros_like(meant);
    for (int64_t i = 0; i < kDraws; ++i) {
      const BuiltCore core = make_core(name, {{"features", 32}}, {.heads = 1, .seed = 100 + static_cast<uint64_t>(i)});
      const at::Tensor omega = buffer(core, "evaluation"), sigma = at::ones({1, 5}, at::kDouble);
      const at::Tensor kernel =
          at::matmul(features(name, q, omega, sigma), features(name, k, omega, sigma).transpose(-1, -2));
      sum += kernel, squares += kernel.square();
    }
    const at::Tensor mean = sum / kDraws, error = ((squares / kDraws - mean.square()) / (kDraws - 1)).sqrt();
    INFO(name);
    // 36 estimates: one beyond three standard errors is no surprise, four and a half are.
    CHECK(((mean - meant).abs() / (error + 1e-6)).max().item<double>() < 4.5);
    CHECK(((mean - meant).abs() / (error + 1e-6)).mean().item<double>() < 2);
  }
}

TEST_CASE("the length of queries and keys changes nothing") {
  for (const std::string& name : kNames) {
    const Inputs in = random_inputs(1, 2, 20, 5);
    const BuiltCore core = make_core(name);
    CHECK(max_difference(core(in.q * 30, in.k * 0.7, in.v), core(in.q, in.k, in.v)) < 1e-4);
  }
}

// The gated mixer's outputs before the last map, by the recurrence over tokens.
at::Tensor recurrence(const std::string& name, const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& v,
                      const at::Tensor& gate, int64_t valid) {
  at::Tensor out = at::zeros_like(v);
  for (int64_t h = 0; h < v.size(1); ++h) {
    at::Tensor sums = at::zeros({phi_k.size(3), v.size(3)}, at::kDouble),
               total = at::zeros({phi_k.size(3)}, at::kDouble);
    for (int64_t i = 0; i < valid; ++i) {
      const at::Tensor g = gate[0][h][i], key = phi_k[0][h][i];
      sums = g * sums + (1 - g) * at::outer(key, v[0][h][i]);
      total = g * total + (1 - g) * key;
      double den = at::dot(phi_q[0][h][i], total).item<double>();
      if (name == "rfa-arccos") den += 1e-7;
      else if (std::abs(den) < 1e-3) den = den < 0 ? -1e-3 : 1e-3;
      out[0][h][i].copy_(at::matmul(phi_q[0][h][i], sums) / den);
    }
  }
  return out;
}

TEST_CASE("the gated form equals its recurrence, over chunks and over padding in the middle") {
  for (const std::string& name : kNames)
    for (const int64_t valid : {90, 71}) {
      const BuiltMixer mixer = make_mixer(name, {{"gate", true}, {"features", 12}}, {.causal = true});
      const at::Tensor x = random_tensor("x", {1, 90, 10});
      std::map<std::string, at::Tensor> kept;
      const SequenceMask mask = valid == 90 ? SequenceMask{{}, true} : length_mask({valid}, 90, true);
      {
        const ProbeRecorder recorder([](const std::string&) { return true; });
        (void)mixer(x, mask);
        for (const auto& [key, tensor] : recorder.kept()) kept[key] = tensor.detach();
      }
      const at::Tensor gate = kept.at("gate");
      CHECK((gate.min().item<double>() > 0.2 && gate.max().item<double>() < 1));
      CHECK(max_difference(kept.at("mixed"),
                           recurrence(name, kept.at("phi_q"), kept.at("phi_k"), kept.at("v"), gate, valid)) < 1e-10);
    }
}

TEST_CASE("a constant gate discounts earlier keys by itself, and gated rows see no later token bit for bit") {
  const BuiltMixer mixer = make_mixer("rfa-gaussian", {{"gate", true}, {"features", 12}}, {.causal = true});
  auto parameters = mixer.module->named_parameters();
  parameters["gate.weight"].data().zero_();
  parameters["gate.bias"].data().fill_(std::log(0.75 / 0.25));
  const at::Tensor x = random_tensor("x", {1, 80, 10});
  std::map<std::string, at::Tensor> kept;
  {
    const ProbeRecorder recorder([](const std::string&) { return true; });
    (void)mixer(x, {{}, true});
    for (const auto& [key, tensor] : recorder.kept()) kept[key] = tensor.detach();
  }
  const at::Tensor scale = at::arange(80, at::kDouble).view({1, 1, 80, 1}) * -std::log(0.75);
  const at::Tensor sums = causal_kernel_sums(kept.at("phi_q"), kept.at("phi_k"), values_and_count(kept.at("v"), {}),
                                             scale.expand({1, 2, 80, 1}));
  const at::Tensor den = sums.narrow(-1, 5, 1) * 0.25;
  const at::Tensor meant = sums.narrow(-1, 0, 5) * 0.25 / den, steady = den.abs().gt(1e-3).to(at::kDouble);
  CHECK(max_difference(kept.at("mixed") * steady, meant * steady) < 1e-9);
  const at::Tensor later = at::cat({x.narrow(1, 0, 70), random_tensor("later", {1, 10, 10}) * 9}, 1);
  CHECK(at::equal(mixer(x, {{}, true}).narrow(1, 0, 70), mixer(later, {{}, true}).narrow(1, 0, 70)));
}

// What a gated mixer of 12 features shows of a pass over x [1,n,10].
std::map<std::string, at::Tensor> gated(const BuiltMixer& mixer, const at::Tensor& x) {
  std::map<std::string, at::Tensor> kept;
  const ProbeRecorder recorder([](const std::string&) { return true; });
  (void)mixer(x, {{}, true});
  for (const auto& [key, tensor] : recorder.kept()) kept[key] = tensor.detach();
  return kept;
}

TEST_CASE("a gate that opens fully keeps what was there: later keys and values count for nothing") {
  const int64_t n = 60, old = 20;
  for (const std::string& name : kNames) {
    INFO(name);
    const BuiltMixer mixer = make_mixer(name, {{"gate", true}, {"features", 12}}, {.causal = true});
    auto parameters = mixer.module->named_parameters();
    parameters["gate.weight"].data().zero_();
    parameters["gate.weight"].data().select(1, 0).fill_(1);
    parameters["gate.bias"].data().zero_();
    at::Tensor x = random_tensor("x", {1, n, 10});
    x.select(2, 0).narrow(1, 0, old).fill_(std::log(0.75 / 0.25));
    x.select(2, 0).narrow(1, old, n - old).fill_(50);  // 1 - g = 2e-22
    const auto kept = gated(mixer, x);
    // The discounts of the old keys as the last of them left them.
    const at::Tensor discount = at::pow(0.75, at::arange(old - 1, -1, -1, at::kDouble)).view({old, 1}) * 0.25;
    const at::Tensor keys = kept.at("phi_k").narrow(2, 0, old) * discount;
    const at::Tensor weights = at::matmul(kept.at("phi_q").narrow(2, old, n - old), keys.transpose(-1, -2));
    at::Tensor den = weights.sum(-1, /*keepdim=*/true);
    const at::Tensor steady = den.abs().gt(1e-3).to(at::kDouble);
    if (name == "rfa-arccos") den = den + 1e-7;
    const at::Tensor meant = at::matmul(weights, kept.at("v").narrow(2, 0, old)) / den;
    CHECK(steady.sum().item<double>() > static_cast<double>(n));
    CHECK(max_difference(kept.at("mixed").narrow(2, old, n - old) * steady, meant * steady) < 1e-9);
  }
}

TEST_CASE("a constant value stays one under a gate, but for what is added to denominators") {
  for (const std::string& name : kNames) {
    INFO(name);
    const BuiltMixer mixer = make_mixer(name, {{"gate", true}, {"features", 12}}, {.causal = true});
    auto parameters = mixer.module->named_parameters();
    parameters["value.weight"].data().zero_();
    parameters["value.bias"].data().fill_(3);
    const auto kept = gated(mixer, random_tensor("x", {1, 60, 10}));
    const at::Tensor den = kept.at("denominator"), steady = den.abs().gt(1e-3).to(at::kDouble);
    const at::Tensor meant = 3 * den / (name == "rfa-arccos" ? den + 1e-7 : den);
    CHECK(steady.sum().item<double>() > 60);  // of 120 rows, of all heads
    CHECK(max_difference(kept.at("mixed") * steady, meant.expand_as(kept.at("mixed")) * steady) < 1e-9);
  }
}

TEST_CASE("training draws new directions, evaluation keeps its own") {
  const auto after = [](const BuiltCore& core, int64_t step) {
    core.module->after_step(step);
    return buffer(core, "omega").clone();
  };
  const BuiltCore core = make_core("rfa-gaussian", {{"features", 12}}),
                  again = make_core("rfa-gaussian", {{"features", 12}});
  const Inputs in = random_inputs(1, 2, 20, 5);
  const at::Tensor first = buffer(core, "omega").clone(), evaluated = core(in.q, in.k, in.v);
  CHECK(at::equal(after(core, 1), after(again, 1)));
  CHECK_FALSE(at::equal(buffer(core, "omega"), first));
  CHECK(at::equal(core(in.q, in.k, in.v), evaluated));
  core.module->train();
  CHECK_FALSE(at::equal(core(in.q, in.k, in.v), evaluated));

  const BuiltCore fixed = make_core("rfa-gaussian", {{"features", 12}, {"redraw", 0}});
  CHECK(fixed.shared->named_buffers().size() == 1);
  const at::Tensor kept = buffer(fixed, "omega").clone();
  CHECK(at::equal(after(fixed, 1), kept));
}

TEST_CASE("many features of sigma s come near the softmax of unit vectors with logits s^2 cos") {
  const double s = 1.2;
  Inputs in = random_inputs(1, 1, 12, 5);
  const BuiltCore core = make_core("rfa-gaussian", {{"features", 20000}}, {.heads = 1});
  core.module->named_parameters()["sigma"].data().fill_(s);
  const auto unit = [](const at::Tensor& x) { return x / x.norm(2, at::IntArrayRef({-1}), true); };
  const at::Tensor weights = at::softmax(s * s * at::matmul(unit(in.q), unit(in.k).transpose(-1, -2)), -1);
  CHECK(max_difference(core(in.q, in.k, in.v), at::matmul(weights, in.v)) < 0.05);
}

TEST_CASE("random feature attention has the parameters and buffers that it states, and gates causal attention alone") {
  for (const std::string& name : kNames) {
    CHECK(parameters_of(name) == 16704);
    CHECK(parameters_of(name, {{"gate", true}}, /*causal=*/true) == 16834);
    int64_t numbers = 0;
    const BuiltCore core = make_core(name, {}, {.head_dim = 32});
    for (const auto& item : core.shared->named_buffers()) numbers += item.value().numel();
    CHECK(numbers == 2 * 64 * 32);
    CHECK_THROWS_WITH(make_mixer(name, {{"gate", true}}), Catch::Matchers::Contains("attention.gate"));
    CHECK_THROWS_WITH(make_mixer("mrs-" + name, {{"gate", true}}), Catch::Matchers::Contains("attention.gate"));
    CHECK_THROWS_WITH(make_core(name, {{"gate", true}}, {.causal = true}), Catch::Matchers::Contains("attention.gate"));
    const Cost cost = core.module->cost({3, 2, 100, 100, 32});
    const double f = name == "rfa-arccos" ? 64 : 128;
    CHECK(cost.flops_executed == 6.0 * 100 * (4 * 32 * 64 + 4 * f * 33));
  }
}

}  // namespace xformer::attention::rfa_test
