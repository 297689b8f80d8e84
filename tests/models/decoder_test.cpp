// The decoder against its equations; that no place sees a later one, whatever the attention; who has no causal form.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "models/family_model.h"

namespace xformer::models::decoder_test {

using namespace family_model;

namespace {

constexpr int64_t kPlaces = 48, kIds = 20, kClasses = 17;  // the last 17 ids are predicted

ModelRequest decoder(const std::string& attention, const Json& options = Json::object()) {
  Json small{{"dim", 16}, {"head_dim", 8}, {"ff_dim", 24}};
  small.update(options);
  ModelRequest request = request_for("decoder", attention, {kPlaces, kIds}, kClasses, small);
  request.causal = true;
  return request;
}

ModelInput input() {
  return {(at::arange(2 * kPlaces, at::kLong) * 7 % kIds).view({2, kPlaces}), at::ones({2, kPlaces}, at::kBool)};
}

}  // namespace

TEST_CASE("the decoder is embedding, causal blocks and scores of the vocabulary's last ids at every place",
          "[decoder]") {
  for (const std::string norm : {"pre", "post"})
    for (const bool tied : {true, false}) {
      CAPTURE(norm, tied);
      // Attention `none` hands the values on.
      const auto model = build("decoder", decoder("none", {{"norm", norm}, {"tied", tied}}));
      const Tensors of(*model);
      at::Tensor x = at::embedding(of("tokens"), input().tokens) + of("positions");
      for (const std::string layer : {"layer0.", "layer1."}) {
        const auto mixed = [&](const at::Tensor& y) {
          return of.map(layer + "mixer.out", of.map(layer + "mixer.value", y));
        };
        const auto fed = [&](const at::Tensor& y) {
          return of.map(layer + "ff.out", at::gelu(of.map(layer + "ff.in", y)));
        };
        if (norm == "pre") {
          x = x + mixed(of.norm(layer + "mixer_norm", x));
          x = x + fed(of.norm(layer + "ff_norm", x));
        } else {
          x = of.norm(layer + "mixer_norm", x + mixed(x));
          x = of.norm(layer + "ff_norm", x + fed(x));
        }
      }
      if (norm == "pre") x = of.norm("norm", x);
      const at::Tensor meant =
          tied ? at::matmul(x, of("tokens").narrow(0, kIds - kClasses, kClasses).t()) : of.map("classifier_out", x);
      const at::Tensor found = model->forward(input());
      CHECK(found.sizes() == at::IntArrayRef({2, kPlaces, kClasses}));
      CHECK(apart(found, meant) < 1e-5);
    }
}

TEST_CASE("layers without a feed-forward part are mixers alone", "[decoder]") {
  for (const std::string norm : {"pre", "post"}) {
    CAPTURE(norm);
    const auto model = build("decoder", decoder("none", {{"norm", norm}, {"ff_dim", 0}, {"layers", 1}}));
    const Tensors of(*model);
    const at::Tensor x = at::embedding(of("tokens"), input().tokens) + of("positions");
    const bool pre = norm == "pre";
    const at::Tensor mixed =
        of.map("layer0.mixer.out", of.map("layer0.mixer.value", pre ? of.norm("layer0.mixer_norm", x) : x));
    const at::Tensor end = of.norm(pre ? "norm" : "layer0.mixer_norm", x + mixed);
    CHECK(apart(model->forward(input()), at::matmul(end, of("tokens").narrow(0, kIds - kClasses, kClasses).t())) <
          1e-5);
    for (const auto& [name, tensor] : state(*model)) CHECK(name.find("ff") == std::string::npos);
  }
}

TEST_CASE("a tied readout has no parameters of its own, and its gradient reaches the embedding", "[decoder]") {
  const auto tied = build("decoder", decoder("softmax")),
             untied = build("decoder", decoder("softmax", {{"tied", false}}));
  CHECK(parameter_count(*untied) - parameter_count(*tied) == kClasses * 16 + kClasses);
  ModelInput one = input();
  one.tokens.fill_(1);  // only its vector and position are read; the scored ids 3 to 19 are others
  at::log_softmax(tied->forward(one), -1).select(-1, 5).sum().backward();
  const at::Tensor gradient = tied->named_parameters().find("tokens")->grad().abs().sum(1);
  CHECK((gradient > 0).to(at::kLong).equal((at::arange(kIds) == 1).logical_or(at::arange(kIds) >= 3).to(at::kLong)));
  // Every place is scored: two operations for each of its 16 numbers and each class.
  ModelRequest one_class = decoder("softmax");
  one_class.outputs = 1;
  const double by_class = 2.0 * 3 * kPlaces * 16;
  for (const auto& model : {tied, untied})
    CHECK(model->cost(3, kPlaces).flops_executed - build("decoder", one_class)->cost(3, kPlaces).flops_executed ==
          by_class * (kClasses - 1));
}

TEST_CASE("no place of a decoder sees a later one, in no bit, with any attention that is said to be causal",
          "[decoder]") {
  constexpr int64_t kKept = 21;
  int64_t causal = 0;
  for (const std::string& name : attention::distinct_names()) {
    CAPTURE(name);
    const bool can = attention::resolve(name).traits().causal_ok;
    if (!can) {
      CHECK_THROWS_WITH(build("decoder", decoder(name)), Catch::Matchers::Contains("has no causal form"));
      continue;
    }
    ++causal;
    const auto model = build("decoder", decoder(name));
    const at::NoGradGuard no_grad;
    const at::Tensor before = model->forward(input());
    ModelInput changed = input();
    changed.tokens.narrow(1, kKept, kPlaces - kKept).copy_(changed.tokens.narrow(1, kKept, kPlaces - kKept) * 3 % kIds);
    const at::Tensor after = model->forward(changed);
    CHECK(after.narrow(1, 0, kKept).equal(before.narrow(1, 0, kKept)));
    CHECK_FALSE(after.narrow(1, kKept, 1).equal(before.narrow(1, kKept, 1)));
  }
  CHECK(causal >= 10);
}

TEST_CASE("a decoder takes one sequence of ids, and tasks whose places look back only", "[decoder]") {
  const auto refused = [](const InputSpec& given, bool causal) {
    ModelRequest request = decoder("softmax");
    request.input = given;
    request.causal = causal;
    try {
      all_families().get("decoder").check(request);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  using Catch::Matchers::Contains;
  CHECK(refused({kPlaces, kIds}, true) == "accepted");
  CHECK_THAT(refused({kPlaces, 0, 1, 3}, true), Contains("numbers"));
  CHECK_THAT(refused({kPlaces, kIds, 2}, true), Contains("pairs"));
  CHECK_THROWS_WITH(build("decoder", decoder("softmax", {{"ff_dim", 0}, {"reversible", true}})), Contains("ff_dim"));
  CHECK_THROWS_WITH(build("decoder", decoder("softmax", {{"dim", 15}, {"positions", "sinusoidal"}})),
                    Contains("even width"));
}

}  // namespace xformer::models::decoder_test
