// The Python file of a model, as text; tests/python/pytorch_test.py runs it with PyTorch.
#include "inspect/pytorch_module.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "plan/options.h"

namespace xformer::inspect {

namespace {

// The file of a model with its initial weights.
PytorchModule file_of(const std::string& model, const Json& values = Json::object()) {
  plan::PlanRequest words;
  words.task = "listops";
  words.model = model;
  words.layers.push_back({"--set", values});
  const RunPlan plan = plan::resolve_plan(words);
  training::Weights weights;
  for (const auto& [name, tensor] : models::state(*plan::build_model(plan))) weights.tensors.emplace(name, tensor);
  weights.metadata["step"] = "40";
  return pytorch_module(plan, weights, "mine");
}

bool has(const PytorchModule& module, const std::string& part) { return module.text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what has a fragment is an attention's or a family's own name, and each has one") {
  const std::vector<std::string> names = pytorch_attentions();
  CHECK(names.size() > 20);
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  for (const std::string& name : names) CHECK(attention::resolve(name).name == name);
  for (const char* name : {"encoder", "decoder", "token-encoder", "lstm"}) {
    INFO(name);
    const std::vector<std::string> families = pytorch_families();
    CHECK(std::find(families.begin(), families.end(), name) != families.end());
  }
}

TEST_CASE("a file has what its model needs, and nothing of others") {
  const PytorchModule plain = file_of("linformer");
  CHECK(plain.text.starts_with("\"\"\"linformer on listops after 40 steps, as a plain PyTorch module"));
  CHECK(has(plain, "from mine import load"));
  CHECK(has(plain, "projected_len=256,"));
  CHECK(has(plain, "class Mixer(nn.Module)"));
  CHECK_FALSE(has(plain, "BaseCore"));
  CHECK_FALSE(has(plain, "class BatchNorm"));
  CHECK_FALSE(has(plain, "# for:"));
  CHECK(has(plain, "\n\n\ndef zero_padding("));
  CHECK_FALSE(has(plain, "def kernel_sums("));
  CHECK_FALSE(has(plain, "def pool("));
  CHECK(has(file_of("mrs-linear"), "\n\n\ndef kernel_sums("));
  CHECK(has(file_of("mrs-linformer"), "BaseCore = Core"));
  CHECK(has(file_of("linear", {{"model.norm", "batch"}}), "class BatchNorm"));
  const PytorchModule block = file_of("set-isab");
  CHECK(has(block, "class AttentionBlock"));
  CHECK_FALSE(has(block, "class Mixer"));
}

TEST_CASE("weights keep the model's names") {
  const PytorchModule module = file_of("performer");
  const auto found = std::find_if(module.tensors.begin(), module.tensors.end(),
                                  [](const auto& named) { return named.first == "shared.performer_layer1_omega"; });
  CHECK(found != module.tensors.end());
}

TEST_CASE("what has no fragment is refused with what has one") {
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(file_of("reformer"), Contains("reformer") && Contains("linformer, ") && Contains("softmax"));
  CHECK_THROWS_WITH(file_of("block-encoder/softmax"), Contains("block-encoder") && Contains("encoder, "));
  CHECK_THROWS_WITH(file_of("longformer", {{"attention.global_tied", false}}),
                    Contains("attention.global_tied=true alone") && Contains("false"));
}

}  // namespace xformer::inspect
