// Reversible residuals and the chunked feed-forward part: the same numbers in less memory.
#include "models/reversible.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>

#include <catch2/catch.hpp>

#include "models/model.h"
#include "tensor/memory.h"

namespace xformer::models::reversible_test {

namespace {

std::shared_ptr<Model> build(const std::string& attention, const Json& options, int64_t layers = 3) {
  ModelRequest request;
  request.input = {64, 16};
  request.outputs = 4;
  request.attention = attention::resolve(attention);
  request.attention_options = Json::object();
  for (const OptionInfo& option : request.attention.options()) request.attention_options[option.name] = option.fallback;
  const FamilyDescriptor& family = all_families().get("encoder");
  for (const OptionInfo& option : family.options) request.model_options[option.name] = option.fallback;
  request.model_options.update({{"dim", 16}, {"head_dim", 8}, {"ff_dim", 32}, {"layers", layers}});
  request.model_options.update(options);
  request.seed = 4;
  family.check(request);
  return family.build(request);
}

// Rows of 64, 40 and 1 tokens.
ModelInput ragged() {
  const at::Tensor place = at::arange(64, at::kLong).unsqueeze(0);
  const at::Tensor lengths = at::tensor({64, 40, 1}, at::kLong).unsqueeze(1);
  const at::Tensor tokens = at::where(place < lengths, place * 7 % 15 + 1, at::zeros({}, at::kLong));
  return {tokens, tokens > 0};
}

PreNormBlock& block(Model& model, int64_t layer) {
  return dynamic_cast<PreNormBlock&>(*model.named_children()["layer" + std::to_string(layer)]);
}

// Gradients of a model's parameters for a fixed loss, by name.
std::vector<std::pair<std::string, at::Tensor>> gradients_of(Model& model, const at::Tensor& loss) {
  for (const auto& [name, parameter] : trainable(model)) at::Tensor(parameter).mutable_grad() = at::Tensor();
  loss.backward();
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& [name, parameter] : trainable(model)) result.emplace_back(name, parameter.grad().clone());
  return result;
}

constexpr const char* kNames[] = {"softmax", "mrs-linformer", "linear", "performer"};

}  // namespace

TEST_CASE("reversible layers give the outputs and gradients of their equations under plain autograd") {
  for (const std::string name : kNames)
    for (const bool training : {false, true}) {
      INFO(name << (training ? " training, with dropout" : " evaluating"));
      const auto model = build(name, {{"reversible", true}, {"dropout", 0.2}, {"attention_dropout", 0.2}});
      model->to(at::kDouble);
      model->train(training);
      model->dropout_stream()->set_step(3);
      std::vector<std::shared_ptr<PreNormBlock>> blocks;
      for (int64_t layer = 0; layer < 3; ++layer)
        blocks.push_back(
            std::dynamic_pointer_cast<PreNormBlock>(model->named_children()["layer" + std::to_string(layer)]));
      std::vector<at::Tensor> parameters;
      for (const auto& [key, parameter] : trainable(*model)) parameters.push_back(parameter);
      const SequenceMask mask{ragged().key_valid, false};
      const at::Tensor x = InitStream(5).normal("x", {3, 64, 16}, 1).to(at::kDouble).requires_grad_(true);
      const at::Tensor weights = InitStream(5).normal("w", {3, 64, 16}, 1).to(at::kDouble);

      // y1 = x1 + F(x2), y2 = x2 + G(y1), in order, kept by autograd.
      at::Tensor first = x, second = x;
      for (const auto& layer : blocks) {
        attention::Carry carry;
        first = first + layer->mixed(second, mask, carry);
        second = second + layer->fed(first);
      }
      const at::Tensor meant = (first + second) / 2;
      const auto run = [&](const at::Tensor& out) {
        x.mutable_grad() = at::Tensor();
        for (const at::Tensor& parameter : parameters) at::Tensor(parameter).mutable_grad() = at::Tensor();
        (out * weights).sum().backward();
        std::vector<at::Tensor> result{out.detach(), x.grad().clone()};
        for (const at::Tensor& parameter : parameters)
          result.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
        return result;
      };
      const auto expected = run(meant), got = run(run_reversible(blocks, parameters, x, mask));
      size_t compared = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        REQUIRE(expected[i].defined() == got[i].defined());
        if (!expected[i].defined()) continue;  // embeddings and head
        ++compared;
        CHECK((expected[i] - got[i]).abs().max().item<double>() < 1e-8);
      }
      CHECK(compared > 3 * 12);
    }
}

TEST_CASE("a whole reversible model trains: every parameter gets its gradient, also under autocast") {
  for (const std::string name : kNames)
    for (const bool low : {false, true}) {
      INFO(name << " " << low);
      const auto model = build(name, {{"reversible", true}});
      model->train();
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::set_autocast_enabled(at::kCPU, low);
      const at::Tensor logits = model->forward(ragged());
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      for (const auto& [key, gradient] : gradients_of(*model, logits.square().sum())) {
        INFO(key);
        CHECK(gradient.isfinite().all().item<bool>());
        CHECK(gradient.abs().max().item<double>() > 0);
      }
    }
}

TEST_CASE("a reversible model refuses a loss of queries and keys, which would be none") {
  CHECK_THROWS_WITH(build("routing", {{"reversible", true}}),
                    Catch::Matchers::Contains("set attention.commitment=0") &&
                        Catch::Matchers::Contains("model.reversible: routing"));
  CHECK_NOTHROW(build("routing", {{"reversible", false}}));
}

TEST_CASE("memory of a reversible stack between forward and backward does not grow with its depth") {
  install_caching_allocator();
  const auto kept = [](bool reversible, int64_t layers) {
    const auto model = build("softmax", {{"reversible", reversible}}, layers);
    model->train();
    const ModelInput input = ragged();
    const int64_t before = host_memory().live_bytes;
    const at::Tensor logits = model->forward(input);
    return host_memory().live_bytes - before;
  };
  const int64_t plain = kept(false, 8) - kept(false, 2);
  CHECK(plain > 1'000'000);
  CHECK(kept(true, 8) - kept(true, 2) < plain / 1000);
}

TEST_CASE("the feed-forward part in chunks is the same function, dropout included") {
  for (const bool training : {false, true})
    for (const int64_t chunk : {1, 7, 64, 100}) {
      const auto whole = build("linear", {{"dropout", 0.3}}),
                 parts = build("linear", {{"dropout", 0.3}, {"ff_chunk", chunk}});
      std::vector<std::vector<std::pair<std::string, at::Tensor>>> gradients;
      std::vector<at::Tensor> outputs;
      for (const auto& model : {whole, parts}) {
        model->to(at::kDouble);
        model->train(training);
        model->dropout_stream()->set_step(4, 2);  // as the second half of a batch
        outputs.push_back(model->forward(ragged()));
        gradients.push_back(gradients_of(*model, outputs.back().square().sum()));
      }
      CHECK((outputs[0] - outputs[1]).abs().max().item<double>() < 1e-12);
      for (size_t i = 0; i < gradients[0].size(); ++i)
        CHECK((gradients[0][i].second - gradients[1][i].second).abs().max().item<double>() < 1e-10);
      CHECK(block(*parts, 0).cost(3, 64).flops_executed == block(*whole, 0).cost(3, 64).flops_executed);
    }
}

}  // namespace xformer::models::reversible_test
