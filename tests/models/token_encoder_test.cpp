// The encoder of places against its equations; that every place sees those behind it; padding; what it refuses.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "kernels/policy_scope.h"
#include "models/family_model.h"

namespace xformer::models::token_encoder_test {

using namespace family_model;

namespace {

constexpr int64_t kPlaces = 24, kIds = 20, kClasses = 16, kSegments = 2;  // the last 16 ids are predicted

ModelRequest places(const std::string& attention, const Json& options = Json::object()) {
  Json small{{"dim", 16}, {"head_dim", 8}, {"ff_dim", 24}};
  small.update(options);
  return request_for("token-encoder", attention, {.max_tokens = kPlaces, .vocabulary = kIds, .segments = kSegments},
                     kClasses, small);
}

ModelInput input() {
  ModelInput result{(at::arange(2 * kPlaces, at::kLong) * 7 % (kIds - 1) + 1).view({2, kPlaces}),
                    at::ones({2, kPlaces}, at::kBool)};
  result.segments = at::arange(kPlaces, at::kLong).ge(10).to(at::kLong).expand({2, kPlaces}).contiguous();
  return result;
}

}  // namespace

TEST_CASE("a place's vector is its id's, its position's and its segment's; the scores are of the last ids",
          "[token-encoder]") {
  for (const std::string norm : {"pre", "post"})
    for (const bool tied : {true, false}) {
      CAPTURE(norm, tied);
      // Attention `none` hands the values on.
      const auto model = build("token-encoder", places("none", {{"norm", norm}, {"tied", tied}, {"layers", 1}}));
      const Tensors of(*model);
      at::Tensor x = at::embedding(of("tokens"), input().tokens) + of("positions") +
                     at::embedding(of("segments"), input().segments);
      const auto mixed = [&](const at::Tensor& y) {
        return of.map("layer0.mixer.out", of.map("layer0.mixer.value", y));
      };
      const auto fed = [&](const at::Tensor& y) {
        return of.map("layer0.ff.out", at::gelu(of.map("layer0.ff.in", y)));
      };
      if (norm == "pre") {
        x = x + mixed(of.norm("layer0.mixer_norm", x));
        x = of.norm("norm", x + fed(of.norm("layer0.ff_norm", x)));
      } else {
        x = of.norm("layer0.mixer_norm", x + mixed(x));
        x = of.norm("layer0.ff_norm", x + fed(x));
      }
      const at::Tensor meant =
          tied ? at::matmul(x, of("tokens").narrow(0, kIds - kClasses, kClasses).t()) : of.map("classifier_out", x);
      CHECK(apart(model->forward(input()), meant) < 1e-5);
    }
}

TEST_CASE("every place sees those before and behind it, and none that is padding", "[token-encoder]") {
  for (const char* attention : {"softmax", "combiner-fixed", "combiner-axial-rowmajor", "bigbird-itc", "linear"}) {
    CAPTURE(attention);
    const auto model = build("token-encoder", places(attention));
    const at::Tensor whole = model->forward(input());
    ModelInput changed = input();
    changed.tokens = changed.tokens.clone();
    changed.tokens.select(1, kPlaces - 1).fill_(5);
    CHECK(apart(model->forward(changed).select(1, 0), whole.select(1, 0)) > 0);
    ModelInput padded = input();
    padded.key_valid = padded.key_valid.clone();
    padded.key_valid.narrow(1, kPlaces - 4, 4).fill_(false);
    const at::Tensor short_one = model->forward(padded);
    padded.tokens = padded.tokens.clone();
    padded.tokens.narrow(1, kPlaces - 4, 4).fill_(0);
    CHECK(apart(model->forward(padded).narrow(1, 0, kPlaces - 4), short_one.narrow(1, 0, kPlaces - 4)) < 1e-6);
  }
}

TEST_CASE("padded places are answered, too, as the definition has it", "[token-encoder]") {
  const auto model = build("token-encoder", places("linear"));
  ModelInput padded = input();
  padded.key_valid = padded.key_valid.clone();
  padded.key_valid[1].narrow(0, 3, kPlaces - 3).fill_(false);
  const at::Tensor made = model->forward(padded);
  const kernels::PolicyScope reference(kernels::Policy::kReference);
  CHECK(apart(model->forward(padded), made) < 1e-5);
}

TEST_CASE("segments have their gradient, and losses made in blocks are those of the scores", "[token-encoder]") {
  const auto whole = build("token-encoder", places("softmax")),
             blocks = build("token-encoder", places("softmax", {{"loss_block", 7}}));
  ModelInput asked = input();
  asked.labels = (at::arange(2 * kPlaces, at::kLong) * 5 % kClasses).view({2, kPlaces});
  asked.labels.narrow(1, 0, kPlaces - 3).fill_(-1);
  const at::Tensor scores = whole->forward(asked);
  const at::Tensor loss =
      at::cross_entropy_loss(scores.flatten(0, 1), asked.labels.flatten(), {}, at::Reduction::Sum, -1);
  const at::Tensor made = blocks->forward(asked).select(-1, 0).sum();
  CHECK(made.item<double>() == Approx(loss.item<double>()).epsilon(1e-5));
  loss.backward(), made.backward();
  for (const auto& entry : whole->named_parameters()) {
    CAPTURE(entry.key());
    CHECK(apart(entry.value().grad(), blocks->named_parameters().find(entry.key())->grad()) < 1e-4);
  }
  CHECK(whole->named_parameters().find("segments")->grad().abs().sum().item<double>() > 0);
}

TEST_CASE("numbers have no vectors to be scored by", "[token-encoder]") {
  ModelRequest numbers = places("softmax");
  numbers.input = {.max_tokens = kPlaces, .width = 3};
  CHECK_THROWS_WITH(build("token-encoder", numbers), Catch::Matchers::Contains("the task has numbers"));
}

}  // namespace xformer::models::token_encoder_test
