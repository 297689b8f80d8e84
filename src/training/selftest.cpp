#include "training/selftest.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/hash.h"
#include "training/step.h"

namespace xformer::training {

namespace {

// A tiny task: which of four marks stands somewhere among tokens that say nothing.
class MarkTask : public data::DataSource {
 public:
  MarkTask() {
    Stream numbers(7);
    for (int64_t i = 0; i < 512; ++i) {
      std::vector<uint8_t> tokens(12 + numbers.next_below(5));
      for (uint8_t& token : tokens) token = static_cast<uint8_t>(1 + numbers.next_below(4));
      tokens[numbers.next_below(tokens.size())] = static_cast<uint8_t>(kFirstMark + i % 4);
      examples_.push_back(std::move(tokens));
    }
  }
  [[nodiscard]] int64_t size(data::Split) const override { return static_cast<int64_t>(examples_.size()); }
  [[nodiscard]] data::TokenExample read(data::Split, int64_t index) const override {
    const auto& tokens = examples_[static_cast<size_t>(index)];
    return {tokens, *std::max_element(tokens.begin(), tokens.end()) - kFirstMark};
  }
  [[nodiscard]] const data::DataInfo& info() const override { return info_; }

 private:
  static constexpr int64_t kFirstMark = 5;
  std::vector<std::vector<uint8_t>> examples_;
  data::DataInfo info_;
};

models::ModelRequest tiny_model(const std::string& name) {
  models::ModelRequest request;
  request.input = {16, 10};
  request.output = {4};
  request.attention = attention::resolve(name);
  request.attention_options = Json::object();
  for (const OptionInfo& option : request.attention.options()) request.attention_options[option.name] = option.fallback;
  const models::FamilyDescriptor& family = models::all_families().get("encoder");
  request.model_options = Json::object();
  for (const OptionInfo& option : family.options) request.model_options[option.name] = option.fallback;
  request.model_options.update({{"dim", 32},
                                {"head_dim", 16},
                                {"ff_dim", 32},
                                {"classifier_dim", 32},
                                {"dropout", 0.05},
                                {"attention_dropout", 0.05}});
  request.seed = 11;
  return request;
}

// Mean losses of every tenth of a fixed training.
std::vector<double> losses_of(const std::string& name, int64_t steps) {
  const auto model = models::all_families().get("encoder").build(tiny_model(name));
  TrainingOptions options;
  options.batch = 32;
  options.learning_rate = 5e-3;
  TrainStep step(*model, options, at::kCPU);
  const MarkTask source;
  data::Prefetcher batches(source, data::Split::kTrain, {options.batch, 16, 1, 3, true}, 0, steps);
  std::vector<double> result;
  for (int64_t i = 0; i < steps; ++i) {
    step.run(batches.next(), i, {options.learning_rate, 0.9});
    if ((i + 1) % (steps / 10) == 0) {
      const StepSums sums = step.read_and_reset();
      result.push_back(sums.loss / sums.rows);
    }
  }
  return result;
}

}  // namespace

bool SelftestReport::passed() const {
  return std::all_of(items.begin(), items.end(), [](const SelftestItem& item) { return item.passed; });
}

SelftestReport run_selftest() {
  SelftestReport report;
  const auto claim = [&](std::string text, bool passed, std::string detail) {
    report.items.push_back({std::move(text), passed, std::move(detail)});
  };

  const at::Tensor x = at::ones({16, 1000});
  kernels::DropoutStream stream(5);
  stream.set_step(3);
  claim("the dropout kernel drops what its definition drops",
        kernels::dropout(x, 0.1, stream.state, 2).equal(kernels::dropout_reference(x, 0.1, stream.state, 2)),
        "16,000 elements");

  std::string text;
  for (const std::string& name : attention::all_names()) {
    const std::vector<double> first = losses_of(name, 80), second = losses_of(name, 80);
    const bool learns = first.back() < 0.6 * first.front();
    claim(name + " learns, twice the same way", learns && first == second,
          fmt::format("loss {:.3f} -> {:.3f}", first.front(), first.back()));
    for (const double loss : first) text += fmt::format("{:.4e} ", loss);
  }
  report.fingerprint = sha256(text).substr(0, 16);
  return report;
}

}  // namespace xformer::training
