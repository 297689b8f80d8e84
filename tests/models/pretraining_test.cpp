// The encoder where its task's own inputs are what is asked: the scores by their equations, that what is hidden is not
// seen, that the body is the task's own, and the causal form.
#include <ATen/Functions.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "models/family_model.h"

namespace xformer::models::pretraining_test {

using namespace family_model;

namespace {

constexpr int64_t kPlaces = 16, kIds = 12, kHidden = 12;  // ids 0 to 11, and the one that hides

ModelRequest task(const std::string& attention, const Json& options = Json::object()) {
  Json small{{"dim", 16}, {"head_dim", 8}, {"ff_dim", 24}, {"layers", 1}};
  small.update(options);
  ModelRequest request =
      request_for("encoder", attention, {.max_tokens = kPlaces, .vocabulary = kIds}, /*outputs=*/5, small);
  request.causal = request.model_options["causal"];
  if (request.attention_options.contains("projected_len")) request.attention_options["projected_len"] = 4;
  return request;
}

ModelRequest masked(const std::string& attention, const Json& options = Json::object()) {
  ModelRequest request = task(attention, options);
  request.input.vocabulary = kIds + 1;
  request.input.masks = true;
  request.per_position = true;
  request.outputs = kIds - 1;
  return request;
}

ModelRequest causal(const std::string& attention) {
  ModelRequest request = task(attention, {{"causal", true}});
  request.per_position = true;
  request.outputs = kIds - 1;
  return request;
}

ModelInput input() {
  ModelInput result{(at::arange(2 * kPlaces, at::kLong) * 7 % (kIds - 1) + 1).view({2, kPlaces}),
                    at::ones({2, kPlaces}, at::kBool)};
  for (const int64_t place : {0, 5, 15}) result.tokens.select(1, place).fill_(kHidden);
  return result;
}

std::map<std::string, at::Tensor> tensors_of(const Model& model) {
  const auto all = state(model);
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("a hidden place has the mask's vector; every place is scored by a map of its own name", "[pretraining]") {
  for (const int64_t rows : {0, 32}) {
    CAPTURE(rows);
    // Attention `none` hands the values on.
    const auto model = build("encoder", masked("none", {{"vocabulary_rows", rows}}));
    const Tensors of(*model);
    const at::Tensor ids = input().tokens, hidden = ids.eq(kHidden).unsqueeze(-1);
    CHECK(of("tokens").size(0) == (rows > 0 ? rows : kIds));
    at::Tensor x = at::where(hidden, of("mask"), at::embedding(of("tokens"), ids.masked_fill(ids.eq(kHidden), 0))) +
                   of("positions");
    x = x + of.map("layer0.mixer.out", of.map("layer0.mixer.value", of.norm("layer0.mixer_norm", x)));
    x = x + of.map("layer0.ff.out", at::gelu(of.map("layer0.ff.in", of.norm("layer0.ff_norm", x))));
    const at::Tensor meant = of.map("symbols_out", of.norm("norm", x));
    const at::Tensor scores = model->forward(input());
    CHECK(scores.sizes() == at::IntArrayRef({2, kPlaces, kIds - 1}));
    CHECK(apart(scores, meant) < 1e-5);
  }
}

TEST_CASE("losses made in blocks are the cross entropy of the scores, and train the mask", "[pretraining]") {
  const auto model = build("encoder", masked("softmax"));
  ModelInput asked = input();
  asked.labels = at::full({2, kPlaces}, -1, at::kLong);
  for (const int64_t place : {0, 5, 15}) asked.labels.select(1, place).fill_(place % (kIds - 1));
  const at::Tensor made = model->forward(asked), scores = model->forward(input());
  CHECK(made.sizes() == at::IntArrayRef({2, kPlaces, 1, 2}));
  const at::Tensor meant =
      at::cross_entropy_loss(scores.flatten(0, 1), asked.labels.flatten(), {}, at::Reduction::Sum, -1);
  CHECK(made.select(-1, 0).sum().item<double>() == Approx(meant.item<double>()).epsilon(1e-5));
  made.select(-1, 0).sum().backward();
  CHECK(model->named_parameters().find("mask")->grad().abs().sum().item<double>() > 0);
}

TEST_CASE("the body is the task's own: names, shapes and initial values", "[pretraining]") {
  for (const char* attention : {"softmax", "linformer", "mrs-linear", "star-transformer"})
    for (const char* pooling : {"mean_padded", "cls_vector", "cls_token", "flatten"}) {
      const Json options{{"pooling", pooling}};
      CAPTURE(attention, pooling);
      const auto own = tensors_of(*build("encoder", task(attention, options))),
                 asked = tensors_of(*build("encoder", masked(attention, options)));
      std::vector<std::string> fresh, left;
      for (const auto& [name, tensor] : own) {
        const auto same = asked.find(name);
        if (same == asked.end()) fresh.push_back(name);
        else CHECK(at::equal(same->second, tensor));
      }
      for (const auto& [name, tensor] : asked)
        if (!own.contains(name)) left.push_back(name);
      CHECK(std::all_of(fresh.begin(), fresh.end(), [](const auto& name) { return name.starts_with("classifier_"); }));
      CHECK(left == std::vector<std::string>{"mask", "symbols_out.bias", "symbols_out.weight"});
      ModelInput whole = input();
      CHECK(build("encoder", masked(attention, options))->forward(whole).sizes() ==
            at::IntArrayRef({2, kPlaces, kIds - 1}));
    }
}

TEST_CASE("under a token in front the places keep their own answers, and the last has none", "[pretraining]") {
  const auto model = build("encoder", masked("none", {{"pooling", "cls_token"}}));
  const at::Tensor whole = model->forward(input());
  ModelInput changed = input();
  changed.tokens = changed.tokens.clone();
  changed.tokens.select(1, 3).fill_(2);
  const at::Tensor moved = (model->forward(changed) - whole).abs().amax({0, 2});
  for (int64_t place = 0; place < kPlaces; ++place) CHECK((moved[place].item<double>() > 0) == (place == 3));
  const Tensors of(*model);
  CHECK(apart(whole.select(1, kPlaces - 1), of("symbols_out.bias").expand({2, kIds - 1})) == 0);
}

TEST_CASE("model.causal lets no place see a later one, whether places or the whole is asked", "[pretraining]") {
  for (const char* attention : {"softmax", "linear", "local-window"}) {
    CAPTURE(attention);
    ModelInput first = input();
    first.tokens = first.tokens.masked_fill(first.tokens.eq(kHidden), 1);
    ModelInput second = first;
    second.tokens = second.tokens.clone();
    second.tokens.narrow(1, 9, kPlaces - 9).fill_(3);
    const auto places = build("encoder", causal(attention));
    const at::Tensor a = places->forward(first), b = places->forward(second);
    CHECK(at::equal(a.narrow(1, 0, 9), b.narrow(1, 0, 9)));
    CHECK_FALSE(at::equal(a.narrow(1, 9, 7), b.narrow(1, 9, 7)));
    // The body of the task's own causal model is the same, and another function than the bidirectional one's.
    const at::Tensor one = build("encoder", task(attention, {{"causal", true}}))->forward(first),
                     both = build("encoder", task(attention))->forward(first);
    CHECK(apart(one, both) > 0);
  }
  CHECK_THROWS_WITH(build("encoder", causal("linformer")), Catch::Matchers::Contains("has no causal form"));
  CHECK_THROWS_WITH(build("encoder", task("softmax", {{"causal", true}, {"pooling", "cls_vector"}})),
                    Catch::Matchers::Contains("model.pooling"));
}

}  // namespace xformer::models::pretraining_test
