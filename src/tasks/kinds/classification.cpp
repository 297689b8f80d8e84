// One of several classes, by a score for each: cross entropy; accuracy (of equal scores the lowest class's counts);
// where the data asks for it, whether the label is among the five highest scores; of two classes AUC and F1, of which
// the data may name one as the headline. Training may smooth labels, to 1 - s of the label and s / classes of every
// class (Szegedy et al. 2016, section 7), and mix two of them by their shares.
#include <ATen/Functions.h>

#include "kernels/cross_entropy/cross_entropy.h"
#include "tasks/two_classes.h"

namespace xformer::tasks::kinds::classification {

namespace {

at::Tensor highest(const at::Tensor& scores) { return scores.argmax(-1); }

// Of two classes; what the higher probability of class 1 is the higher for.
at::Tensor difference(const at::Tensor& scores) { return scores.select(-1, 1) - scores.select(-1, 0); }

at::Tensor among_five(const at::Tensor& scores, const BatchView& batch) {
  return scores.gt(scores.gather(1, batch.field("label").unsqueeze(1))).sum(1).lt(5);
}

class Classification : public RowTask {
 public:
  Classification(const data::TargetSpec& target, const LossOptions& options)
      : RowTask(target.classes()),
        top5_(target.parameters.value("top5", false)),
        smoothing_(options.label_smoothing),
        headline_(target.parameters.value("headline", accuracy_metric().name)) {}

  at::Tensor loss(const at::Tensor& outputs, const BatchView& batch) const override {
    if (batch.has("share")) return RowTask::loss(outputs, batch);
    check_columns(outputs);
    return kernels::cross_entropy({outputs, batch.field("label"), batch.row_valid}, smoothing_);
  }

  // Of mixed examples.
  at::Tensor row_losses(const at::Tensor& outputs, const BatchView& batch) const override {
    const auto against = [&](const at::Tensor& labels) {
      return at::cross_entropy_loss(outputs, labels, {}, at::Reduction::None, -100, smoothing_);
    };
    return batch.field("share") * against(batch.field("label")) +
           (1 - batch.field("share")) * against(batch.field("second_label"));
  }

  MeterList meters() const override {
    MeterList result;
    result.push_back(mean_meter(accuracy_metric(), [](const at::Tensor& scores, const BatchView& batch) {
      return kernels::rows_found({scores, batch.field("label"), batch.row_valid});
    }));
    if (top5_) result.push_back(share_meter(top5_metric(), among_five));
    if (output().columns == 2) add_two_class_meters(result, difference, highest);
    lead_with(headline_, result);
    return result;
  }

  std::unique_ptr<Answers> answers() const override {
    if (output().columns == 2) return two_class_answers(highest);
    std::vector<GuessMetric> metrics{{accuracy_metric(), 1}};
    if (top5_) metrics.push_back({top5_metric(), 5});
    return label_answers(highest, metrics);
  }

 private:
  bool top5_;
  double smoothing_;
  std::string headline_;
};

}  // namespace

TaskKind describe() {
  return {.name = "classification",
          .summary = "one of several classes, by a score for each",
          .fields = {"label"},
          .make = [](const data::DataShape& shape, const LossOptions& options) {
            return std::make_unique<Classification>(shape.target, options);
          }};
}

}  // namespace xformer::tasks::kinds::classification
