// One of two classes, by one logit: above zero it says class 1. Where the data asks for it, Gini is the headline.
#include <ATen/Functions.h>

#include "tasks/two_classes.h"

namespace xformer::tasks::kinds::binary {

namespace {

at::Tensor score(const at::Tensor& logits) { return logits.squeeze(-1); }
at::Tensor predicted(const at::Tensor& logits) { return logits.squeeze(-1).gt(0).to(at::kLong); }

class Binary : public RowTask {
 public:
  explicit Binary(const data::TargetSpec& target) : RowTask(1), gini_(target.parameters.value("gini", false)) {}

  at::Tensor row_losses(const at::Tensor& outputs, const BatchView& batch) const override {
    const at::Tensor label = batch.field("label").to(outputs.scalar_type());
    return at::binary_cross_entropy_with_logits(outputs.squeeze(-1), label, {}, {}, at::Reduction::None);
  }

  MeterList meters() const override {
    MeterList result;
    if (gini_) result.push_back(gini_meter(score));
    result.push_back(share_meter(accuracy_metric(), [](const at::Tensor& logits, const BatchView& batch) {
      return predicted(logits).eq(batch.field("label"));
    }));
    add_two_class_meters(result, score, predicted);
    return result;
  }

  std::unique_ptr<Answers> answers() const override { return two_class_answers(predicted); }

 private:
  bool gini_;
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
