#include "tasks/two_classes.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace xformer::tasks {

namespace {

class AreaUnderCurve : public Meter {
 public:
  AreaUnderCurve(MetricSpec spec, OfRows score) : Meter(std::move(spec)), score_(std::move(score)) {}
  bool on_host() const override { return true; }
  void add(const at::Tensor& outputs, const data::HostBatch& batch) override {
    const at::Tensor scores = score_(outputs.to(at::kDouble)).contiguous();
    const std::vector<int64_t>& labels = batch.whole("label");
    for (int64_t row = 0; row < scores.size(0); ++row) {
      const double score = scores.const_data_ptr<double>()[row];
      rows_.emplace_back(std::isnan(score) ? -std::numeric_limits<double>::infinity() : score,
                         labels[static_cast<size_t>(row)] == 1);
    }
  }
  double value(const Totals&) const override { return area(); }

 protected:
  double area() const {
    std::vector<std::pair<double, bool>> rows = rows_;
    std::sort(rows.begin(), rows.end());
    double ones = 0, ranks = 0;  // of class 1, from 1: halves at most, so sums are exact
    for (size_t first = 0, end = 0; first < rows.size(); first = end) {
      double ones_here = 0;
      for (; end < rows.size() && rows[end].first == rows[first].first; ++end) ones_here += rows[end].second ? 1 : 0;
      ones += ones_here;
      ranks += ones_here * static_cast<double>(first + 1 + end) / 2;
    }
    const double pairs = ones * (static_cast<double>(rows.size()) - ones);
    return pairs > 0 ? (ranks - ones * (ones + 1) / 2) / pairs : 0.5;
  }

 private:
  OfRows score_;
  std::vector<std::pair<double, bool>> rows_;  // score; is it class 1
};

class Gini : public AreaUnderCurve {
 public:
  explicit Gini(OfRows score) : AreaUnderCurve(gini_metric(), std::move(score)) {}
  double value(const Totals&) const override { return 2 * area() - 1; }
};

class F1 : public Meter {
 public:
  explicit F1(OfRows predict) : Meter(f1_metric()), predict_(std::move(predict)) {}
  int64_t counts() const override { return 2; }
  std::vector<at::Tensor> count(const at::Tensor& outputs, const BatchView& batch) const override {
    const at::Tensor given = predict_(outputs), meant = batch.field("label");
    return {valid_sum(given * meant, batch), valid_sum(given + meant, batch)};
  }
  // 2 tp + fp + fn are all that are given and all that are meant.
  double value(const Totals& totals) const override {
    return totals.counted[1] > 0 ? 2 * totals.counted[0] / totals.counted[1] : 0;
  }

 private:
  OfRows predict_;
};

class TwoClassAnswers : public Answers {
 public:
  TwoClassAnswers(OfRows predict, std::vector<Metric> further)
      : rows_(label_answers(std::move(predict), {{accuracy_metric(), 1}})), further_(std::move(further)) {}
  void add(const at::Tensor& outputs, const data::HostBatch& batch) override {
    rows_->add(outputs, batch);
    const std::vector<int64_t>& labels = batch.whole("label");
    for (size_t row = 0; row < static_cast<size_t>(batch.filled); ++row) ones_ += labels[row] == 1 ? 1 : 0;
    examples_ += static_cast<double>(batch.filled);
  }
  void write(const Path& path, const AnswerNames& names) const override { rows_->write(path, names); }
  // Equal scores tell nothing apart; always to say 1 finds every one.
  std::vector<Metric> constant_answer() const override {
    std::vector<Metric> result = rows_->constant_answer();
    result.push_back({auc_metric(), 0.5});
    result.push_back({f1_metric(), 2 * ones_ / (ones_ + examples_)});
    result.insert(result.end(), further_.begin(), further_.end());
    return result;
  }

 private:
  std::unique_ptr<Answers> rows_;
  std::vector<Metric> further_;
  double ones_ = 0, examples_ = 0;
};

}  // namespace

MetricSpec auc_metric() { return {"auc", "AUC", "%", true, 2}; }
MetricSpec gini_metric() { return {"gini", "Gini", "%", true, 2}; }
MetricSpec f1_metric() { return {"f1", "F1", "%", true, 2}; }

void add_two_class_meters(MeterList& meters, OfRows score, OfRows predict) {
  meters.push_back(std::make_unique<AreaUnderCurve>(auc_metric(), std::move(score)));
  meters.push_back(std::make_unique<F1>(std::move(predict)));
}

std::unique_ptr<Meter> gini_meter(OfRows score) { return std::make_unique<Gini>(std::move(score)); }

void lead_with(const std::string& metric, MeterList& meters) {
  const auto found =
      std::find_if(meters.begin(), meters.end(), [&](const auto& meter) { return meter->spec().name == metric; });
  XF_ASSERT(found != meters.end(), "no metric {} of this task", metric);
  std::rotate(meters.begin(), found, found + 1);
}

std::unique_ptr<Answers> two_class_answers(OfRows predict, std::vector<Metric> further) {
  return std::make_unique<TwoClassAnswers>(std::move(predict), std::move(further));
}

}  // namespace xformer::tasks
