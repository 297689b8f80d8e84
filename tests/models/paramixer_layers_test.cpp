// paramixer in the encoder: layers without norms, read flat or at a class token (attention-more 1).
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "models/family_model.h"

namespace xformer::models::paramixer_layers_test {

using namespace family_model;

namespace {

ModelRequest request_of(const Json& options, const Json& attention = Json::object()) {
  Json all{{"dim", 16},           {"layers", 2},    {"norm", "post"},          {"length_rule", "exact"},
           {"classifier_dim", 0}, {"dropout", 0.0}, {"attention_dropout", 0.0}};
  all.update(options);
  ModelRequest request = request_for("encoder", "paramixer-chord", {12, 20}, 5, all);
  request.attention_options.update(attention);
  return request;
}

ModelInput ids() {
  ModelInput input{at::arange(24, at::kLong).view({2, 12}).remainder(11) + 1, at::ones({2, 12}, at::kBool)};
  input.key_valid[1].narrow(0, 9, 3).fill_(false);
  return input;
}

// The layers of 12 places behind each other, from what the embedding made.
at::Tensor layers(const Tensors& of, const at::Tensor& first, const at::Tensor& valid) {
  at::Tensor v = first;
  const auto maps = [&](const std::string& name, const at::Tensor& x) {
    return of.map(name + ".out", at::gelu(of.map(name + ".in", x)));
  };
  for (const std::string layer : {"layer0.", "layer1."}) {
    v = maps(layer + "value", v) * valid;
    for (int64_t m = 0; m < 4; ++m) {
      const at::Tensor weights = maps(layer + "factor" + std::to_string(m), first);
      at::Tensor sum = v;
      for (int64_t p = 0; p < 5; ++p)
        sum = sum + weights.narrow(2, p, 1) * v.roll(p == 0 ? 0 : -(int64_t{1} << (p - 1)), 1);
      v = sum * valid;
    }
  }
  return v;
}

}  // namespace

TEST_CASE("paramixer's layers read flat have no norm at all, whatever model.norm says of blocks") {
  const auto model = build("encoder", request_of({{"pooling", "flatten"}}));
  const Tensors of(*model);
  for (const auto& item : model->named_parameters()) CHECK(item.key().find("norm") == std::string::npos);
  const ModelInput input = ids();
  const at::Tensor valid = input.key_valid.unsqueeze(-1).to(at::kFloat);
  const at::Tensor first = at::embedding(of("tokens"), input.tokens) + of("positions");
  CHECK(apart(model->forward(input), of.map("classifier_out", layers(of, first, valid).flatten(1))) < 1e-5);
}

TEST_CASE("paramixer's class token is one of the places that links go around") {
  const auto model = build("encoder", request_of({{"pooling", "cls_token"}, {"positions", "none"}}));
  const Tensors of(*model);
  const ModelInput input = ids();
  const auto in_front = [](const at::Tensor& x, const at::Tensor& front) {
    return at::cat({front.to(x.scalar_type()), x.narrow(1, 0, 11)}, 1);
  };
  const at::Tensor tokens = in_front(input.tokens, at::full({2, 1}, 20, at::kLong));
  const at::Tensor valid = in_front(input.key_valid, at::ones({2, 1}, at::kBool)).unsqueeze(-1).to(at::kFloat);
  const at::Tensor read = layers(of, at::embedding(of("tokens"), tokens), valid).select(1, 0);
  CHECK(apart(model->forward(input), of.map("classifier_out", read)) < 1e-5);
}

TEST_CASE("attention.final_norm puts a norm behind paramixer's layers") {
  const auto model = build("encoder", request_of({{"pooling", "flatten"}}, {{"final_norm", true}}));
  const Tensors of(*model);
  const ModelInput input = ids();
  const at::Tensor valid = input.key_valid.unsqueeze(-1).to(at::kFloat);
  const at::Tensor first = at::embedding(of("tokens"), input.tokens) + of("positions");
  const at::Tensor normed = of.norm("norm", layers(of, first, valid)) * valid;
  CHECK(apart(model->forward(input), of.map("classifier_out", normed.flatten(1))) < 1e-5);
}

}  // namespace xformer::models::paramixer_layers_test
