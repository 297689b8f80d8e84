#include "inspect/tiny.h"

#include <algorithm>

#include "core/random.h"

namespace xformer::inspect {

namespace {

constexpr int64_t kFirstMark = 5;

}  // namespace

MarkTask::MarkTask() {
  info_.shape = {.max_len = 16, .vocabulary = 10, .target = data::class_target(4)};
  Stream numbers(7);
  for (int64_t i = 0; i < 512; ++i) {
    std::vector<uint8_t> tokens(12 + numbers.next_below(5));
    for (uint8_t& token : tokens) token = static_cast<uint8_t>(1 + numbers.next_below(4));
    tokens[numbers.next_below(tokens.size())] = static_cast<uint8_t>(kFirstMark + i % 4);
    examples_.push_back(std::move(tokens));
  }
}

data::Example MarkTask::read(data::Split, int64_t index) const {
  const auto& tokens = examples_[static_cast<size_t>(index)];
  return {{tokens}, {}, *std::max_element(tokens.begin(), tokens.end()) - kFirstMark};
}

Json defaults_of(const std::vector<OptionInfo>& options) {
  Json result = Json::object();
  for (const OptionInfo& option : options) result[option.name] = option.fallback;
  return result;
}

std::shared_ptr<models::Model> build_tiny_model(const std::string& attention) {
  const models::FamilyDescriptor& family = models::all_families().get("encoder");
  models::ModelRequest request;
  request.input = {16, 10};
  request.outputs = 4;
  request.attention = attention::resolve(attention);
  request.attention_options = defaults_of(request.attention.options());
  request.model_options = defaults_of(family.options);
  request.model_options.update({{"dim", 32},
                                {"head_dim", 16},
                                {"ff_dim", 32},
                                {"classifier_dim", 32},
                                {"dropout", 0.05},
                                {"attention_dropout", 0.05}});
  request.seed = 11;
  return family.build(request);
}

}  // namespace xformer::inspect
