// What is predicted: what a model must return for it, the loss, the metrics, and what is kept of every answer. A kind
// of task is one file of tasks/kinds; the data names it (data/target.h), and nothing outside that file compares names.
#pragma once

#include "core/registry.h"
#include "tasks/answers.h"
#include "tasks/meter.h"

namespace xformer::tasks {

// What a model must return.
struct OutputSpec {
  int64_t columns = 1;         // scores of classes, one logit, one number
  bool per_position = false;   // an answer for every place, [b, n, columns]; else one for the example, [b, columns]
  bool causal = false;         // no place may see a later one
  bool carries_state = false;  // in an evaluation, too, a batch goes on where the one before it ended
  int64_t written = 0;         // in an evaluation the model also writes a text of at most so many symbols; 0: none
};

class Task {
 public:
  virtual ~Task() = default;
  [[nodiscard]] virtual OutputSpec output() const = 0;
  // What the loss over these rows is divided by, float64 []: their number, or that of the places to be predicted.
  // Training needs it of a whole batch before the first of its micro-batches goes backwards, so it cannot depend on
  // outputs.
  [[nodiscard]] virtual at::Tensor weight(const BatchView& batch) const;
  // The sum over these rows, differentiable.
  [[nodiscard]] virtual at::Tensor loss(const at::Tensor& outputs, const BatchView& batch) const = 0;
  // The headline first: models are selected and compared by it.
  [[nodiscard]] virtual MeterList meters() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Answers> answers() const = 0;
};

// One answer for an example: the loss is a sum over rows, empty ones left out.
class RowTask : public Task {
 public:
  explicit RowTask(int64_t columns) : columns_(columns) {}
  [[nodiscard]] OutputSpec output() const override { return {columns_}; }
  [[nodiscard]] at::Tensor loss(const at::Tensor& outputs, const BatchView& batch) const override;

 protected:
  void check_columns(const at::Tensor& outputs) const;

 private:
  [[nodiscard]] virtual at::Tensor row_losses(const at::Tensor& outputs, const BatchView& batch) const = 0;  // [b]

  int64_t columns_;
};
// Of [b], over rows that hold an example.
[[nodiscard]] at::Tensor valid_sum(const at::Tensor& by_row, const BatchView& batch);
// The share of examples for which `right` is true, [b].
[[nodiscard]] std::unique_ptr<Meter> share_meter(MetricSpec spec, Count right);

// How training may change the loss; evaluations take it as it is.
struct LossOptions {
  double label_smoothing = 0;
};

// What tasks/kinds/<name>.cpp says about itself.
struct TaskKind {
  std::string name;
  std::vector<std::string> aliases = {};
  std::string summary;
  std::vector<std::string> fields = {};  // of a batch, beside the input
  std::function<std::unique_ptr<Task>(const data::DataShape&, const LossOptions&)> make;
};
[[nodiscard]] const Registry<TaskKind>& all_kinds();
// Of its metrics, the headline first.
[[nodiscard]] std::vector<MetricSpec> metric_specs(const Task& task);
// Of the kind that the data's target names.
[[nodiscard]] std::unique_ptr<Task> make_task(const data::DataShape& shape, const LossOptions& options = {});

}  // namespace xformer::tasks
