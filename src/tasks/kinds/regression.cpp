// A number, by squared error. It is measured by the RMSE in the data's own unit, or, where the data states a tolerance,
// by the share of examples predicted closer than that.
#include <ATen/Functions.h>

#include <cmath>

#include "tasks/task.h"

namespace xformer::tasks::kinds::regression {

namespace {

struct Numbers {
  double scale = 1;      // of the stored target, in the data's unit
  double tolerance = 0;  // in the stored target's; 0: none

  [[nodiscard]] MetricSpec metric() const { return tolerance > 0 ? accuracy_metric() : rmse_metric(); }
  // From the share within the tolerance and the mean squared error.
  [[nodiscard]] double value(double right, double error) const {
    return tolerance > 0 ? right : std::sqrt(error) * scale;
  }
};

class NumberAnswers : public Answers {
 public:
  explicit NumberAnswers(const Numbers& numbers) : numbers_(numbers) {}

  void add(const at::Tensor& outputs, const data::HostBatch& batch) override {
    const std::vector<float>& targets = batch.numbers("target");
    for (int64_t row = 0; row < outputs.size(0); ++row) {
      const auto at = static_cast<size_t>(row);
      rows_.push_back({batch.indices[at], targets[at], outputs.const_data_ptr<float>()[row]});
    }
  }

  void write(const Path& path, const AnswerNames& names) const override {
    const NameColumns more(names, rows_.front().index);
    write_file_atomically(path, [&](const ByteSink& sink) {
      sink(fmt::format("index,target,prediction{}\n", more.head(/*labels=*/false)));
      for (const Row& row : rows_)
        sink(fmt::format("{},{:.9g},{:.9g}{}\n", row.index, row.target, row.prediction, more.cells(row.index)));
    });
  }

  // Of the mean.
  std::vector<Metric> constant_answer() const override {
    const auto count = static_cast<double>(rows_.size());
    double mean = 0, error = 0, right = 0;
    for (const Row& row : rows_) mean += row.target / count;
    for (const Row& row : rows_) {
      error += (row.target - mean) * (row.target - mean) / count;
      right += std::abs(row.target - mean) < numbers_.tolerance ? 1 / count : 0;
    }
    return {{numbers_.metric(), numbers_.value(right, error)}};
  }

 private:
  struct Row {
    int64_t index;
    float target, prediction;
  };
  Numbers numbers_;
  std::vector<Row> rows_;
};

class Regression : public RowTask {
 public:
  explicit Regression(const Numbers& numbers) : RowTask(1), numbers_(numbers) {}

  at::Tensor row_losses(const at::Tensor& outputs, const BatchView& batch) const override {
    return (outputs.squeeze(-1) - batch.field("target").to(outputs.scalar_type())).square();
  }

  MeterList meters() const override {
    MeterList result;
    if (numbers_.tolerance > 0)
      result.push_back(share_meter(
          numbers_.metric(), [tolerance = numbers_.tolerance](const at::Tensor& outputs, const BatchView& batch) {
            return (outputs.squeeze(-1) - batch.field("target").to(outputs.scalar_type())).abs().lt(tolerance);
          }));
    else
      result.push_back(
          loss_meter(numbers_.metric(), [numbers = numbers_](double loss) { return numbers.value(0, loss); }));
    return result;
  }

  std::unique_ptr<Answers> answers() const override { return std::make_unique<NumberAnswers>(numbers_); }

 private:
  Numbers numbers_;
};

}  // namespace

TaskKind describe() {
  return {.name = "regression",
          .summary = "a number, by squared error",
          .fields = {"target"},
          .make = [](const data::DataShape& shape, const LossOptions&) {
            const Json& facts = shape.target.parameters;
            return std::make_unique<Regression>(Numbers{facts.value("scale", 1.0), facts.value("tolerance", 0.0)});
          }};
}

}  // namespace xformer::tasks::kinds::regression
