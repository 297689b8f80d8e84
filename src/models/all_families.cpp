// Collects the families of models/families and lists what a model holds.
#include "models/model.h"

#define XFORMER_DESCRIBE_TYPE std::vector<xformer::models::FamilyDescriptor>
#include "models/families.inc"

namespace xformer::models {

const Registry<FamilyDescriptor>& all_families() {
  static const Registry<FamilyDescriptor> kFamilies("model family", [] {
    std::vector<FamilyDescriptor> result;
    families::for_each_family(
        [&](std::vector<FamilyDescriptor> family) { result.insert(result.end(), family.begin(), family.end()); });
    return result;
  }());
  return kFamilies;
}

Model::Model(uint64_t seed)
    : dropout_stream_(std::make_shared<kernels::DropoutStream>(seed)),
      shared_(register_module("shared", std::make_shared<attention::SharedObjects>())) {}

at::Tensor Model::forward(const ModelInput& input) {
  State state = init_state(input.key_valid.size(0));
  return forward(input, state);
}

std::vector<std::pair<std::string, at::Tensor>> trainable(const Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& entry : model.named_parameters())
    if (entry.value().requires_grad()) result.emplace_back(entry.key(), entry.value());
  return result;
}

std::vector<std::pair<std::string, at::Tensor>> state(const Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& entry : model.named_parameters()) result.emplace_back(entry.key(), entry.value());
  for (const auto& entry : model.named_buffers()) result.emplace_back(entry.key(), entry.value());
  return result;
}

int64_t parameter_count(const Model& model) {
  int64_t result = 0;
  for (const auto& [name, tensor] : trainable(model)) result += tensor.numel();
  return result;
}

}  // namespace xformer::models
