// Every attention in the families that are no plain encoder: built, run and trained by one step's gradients, or refused
// by its name.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "models/family_model.h"

namespace xformer::models::attention_families_test {

using namespace family_model;

namespace {

struct Case {
  std::string family;
  InputSpec input;
  int64_t outputs = 0;
  ModelInput batch;
  Json options = Json::object();
  bool takes_layers = true;  // attentions that are whole layers

  [[nodiscard]] ModelRequest request(const std::string& name) const {
    Json small{{"dim", 16}, {"layers", 2}, {"ff_dim", 24}};
    small.update(options);
    return request_for(family, name, input, outputs, small);
  }
};

// Ids from `first` on; the last sequence ends some places early.
ModelInput ids(const std::vector<int64_t>& sizes, int64_t first, int64_t end) {
  ModelInput result;
  result.tokens = (at::arange(c10::multiply_integers(sizes), at::kLong) * 7 % (end - first) + first).view(sizes);
  result.key_valid = at::ones(sizes, at::kBool);
  const at::Tensor last = result.tokens.flatten(0, -2).select(0, -1), valid = result.key_valid.flatten(0, -2)[-1];
  last.narrow(0, sizes.back() - 5, 5).zero_();
  valid.narrow(0, sizes.back() - 5, 5).fill_(false);
  return result;
}

ModelInput rows_of_columns() {
  ModelInput result{{}, at::ones({4, 6}, at::kBool), InitStream(3).normal("rows", {4, 6, 1}, 1)};
  result.values.select(1, 5).copy_(at::arange(4).remainder(3).unsqueeze(1));  // codes
  return result;
}

std::vector<Case> cases() {
  const Json heads{{"head_dim", 8}};
  std::vector<Case> all{
      {"token-encoder", {.max_tokens = 24, .vocabulary = 20, .segments = 2}, 16, ids({3, 24}, 1, 20), heads},
      {"dual-encoder", {.max_tokens = 13, .vocabulary = 20, .sequences = 2}, 2, ids({3, 2, 16}, 1, 20), heads},
      {"encoder-decoder",
       {.max_tokens = 20, .vocabulary = 9, .sequences = 2, .written = 12},
       7,
       ids({2, 2, 20}, 2, 9),
       heads},
      {"ft-transformer",
       {.max_tokens = 6, .width = 1, .categories = {3}},
       1,
       rows_of_columns(),
       {{"heads", 2}},
       /*takes_layers=*/false}};
  all[0].batch.segments = at::arange(24, at::kLong).ge(10).to(at::kLong).expand({3, 24}).contiguous();
  return all;
}

}  // namespace

TEST_CASE("every attention is run and has gradients in every family, or is refused by its name") {
  for (const Case& one : cases())
    for (const std::string& name : attention::distinct_names()) {
      CAPTURE(one.family, name);
      const ModelRequest request = one.request(name);
      if (!one.takes_layers && request.attention.base->build_block) {
        CHECK_THROWS_MATCHES(build(one.family, request), UserError,
                             Catch::Message(name + " is a whole layer with a feed-forward part of its own; " +
                                            one.family + " brings another"));
        continue;
      }
      const auto model = build(one.family, request);
      model->train();
      model->dropout_stream()->set_step(0);
      const at::Tensor scores = model->forward(one.batch);
      CHECK(scores.size(0) == one.batch.key_valid.size(0));
      CHECK(scores.size(-1) == one.outputs);
      CHECK(scores.isfinite().all().item<bool>());
      (scores * InitStream(5).normal("slopes", scores.sizes(), 1)).sum().backward();
      std::map<std::string, double> of_layers{{"layer0.", 0}, {"layer1.", 0}};
      for (const auto& [key, tensor] : trainable(*model)) {
        if (!tensor.grad().defined()) continue;
        INFO(key);
        CHECK(tensor.grad().isfinite().all().item<bool>());
        for (auto& [layer, sum] : of_layers)
          if (key.starts_with(layer)) sum += tensor.grad().abs().sum().item<double>();
      }
      for (const auto& [layer, sum] : of_layers) {
        INFO(layer);
        CHECK(sum > 0);
      }
    }
}

}  // namespace xformer::models::attention_families_test
