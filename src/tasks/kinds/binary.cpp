// One of two classes, by one logit: above zero it says class 1. The data may name AUC, F1 or Gini as the headline; Gini
// is told of where it is that.
#include <ATen/Functions.h>

#include "tasks/two_classes.h"

namespace xformer::tasks::kinds::binary {

namespace {

at::Tensor score(const at::Tensor& logits) { return logits.squeeze(-1); }
at::Tensor predicted(const at::Tensor& logits) { return logits.squeeze(-1).gt(0).to(at::kLong); }

class Binary : public RowTask {
 public:
  explicit Binary(const data::TargetSpec& target)
      : RowTask(1), headline_(target.parameters.value("headline", accuracy_metric().name)) {}

  at::Tensor row_losses(const at::Tensor& outputs, const BatchView& batch) const override {
    const at::Tensor label = batch.field("label").to(outputs.scalar_type());
    return at::binary_cross_entropy_with_logits(outputs.squeeze(-1), label, {}, {}, at::Reduction::None);
  }

  MeterList meters() const override {
    MeterList result;
    result.push_back(share_meter(accuracy_metric(), [](const at::Tensor& logits, const BatchView& batch) {
      return predicted(logits).eq(batch.field("label"));
    }));
    add_two_class_meters(result, score, predicted);
    if (headline_ == gini_metric().name) result.push_back(gini_meter(score));
    lead_with(headline_, result);
    return result;
  }

  std::unique_ptr<Answers> answers() const override {
    std::vector<Metric> further;
    if (headline_ == gini_metric().name) further.push_back({gini_metric(), 0});  // equal scores tell nothing apart
    return two_class_answers(predicted, further);
  }

 private:
  std::string headline_;
};

}  // namespace

TaskKind describe() {
  return {
      .name = "binary",
      .summary = "one of two classes, by one logit",
      .fields = {"label"},
      .make = [](const data::DataShape& shape, const LossOptions&) { return std::make_unique<Binary>(shape.target); }};
}

}  // namespace xformer::tasks::kinds::binary
