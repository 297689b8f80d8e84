// AUC, Gini and F1 of two classes against their definitions, over batches of any size.
#include "tasks/two_classes.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

namespace xformer::two_classes_test {

using namespace tasks;

namespace {

struct Row {
  double score = 0;  // above zero it says class 1
  int64_t label = 0;
};

data::DataShape shape_of(const char* kind) {
  data::DataShape shape{.max_len = 1, .vocabulary = 3, .target = data::class_target(2)};
  shape.target.kind = kind;
  return shape;
}

// Scores as the kind's model returns them: one logit, or one for each class.
at::Tensor outputs_of(const std::string& kind, const std::vector<Row>& rows) {
  at::Tensor outputs = at::zeros({static_cast<int64_t>(rows.size()), kind == "binary" ? 1 : 2});
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    if (kind == "binary") outputs[row][0] = rows[i].score;
    else outputs[row][0] = 0.25, outputs[row][1] = rows[i].score + 0.25;
  }
  return outputs;
}

// Each metric over the rows in batches of so many, of which the last may be partial; and of a constant answer.
struct TwoClassScore {
  std::map<std::string, double> metrics, constant;
};
TwoClassScore judge(const std::string& kind, const std::vector<Row>& rows, int64_t batch_rows,
                    const char* headline = "accuracy") {
  data::DataShape shape = shape_of(kind.c_str());
  shape.target.parameters["headline"] = headline;
  const auto task = make_task(shape);
  const auto answers = task->answers();
  Meters meters(task->meters());
  at::Tensor sums = at::zeros({meters.size()}, at::kDouble);
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(batch_rows)) {
    data::HostBatch host;
    host.reset(shape, batch_rows, 1);
    host.filled = std::min<int64_t>(batch_rows, static_cast<int64_t>(rows.size() - first));
    std::vector<Row> here(rows.begin() + static_cast<std::ptrdiff_t>(first),
                          rows.begin() + static_cast<std::ptrdiff_t>(first) + host.filled);
    for (size_t i = 0; i < here.size(); ++i) {
      host.whole("label")[i] = here[i].label;
      host.row_valid[i] = 1;
      host.indices[i] = static_cast<int64_t>(first + i);
    }
    here.resize(static_cast<size_t>(batch_rows), {1, 0});  // empty rows say class 1, and count in nothing
    DeviceBatch batch(at::kCPU, batch_rows, 1, shape);
    batch.load(host);
    const at::Tensor outputs = outputs_of(kind, here);
    const BatchView& all = batch.widened();
    sums += meters.count(task->loss(outputs, all), task->weight(all), outputs, all);
    const at::Tensor filled = outputs.narrow(0, 0, host.filled);
    meters.add(filled, host);
    answers->add(filled, host);
  }
  TwoClassScore judged;
  for (const Metric& metric : meters.read({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())}).metrics)
    judged.metrics[metric.spec.name] = metric.value;
  for (const Metric& metric : answers->constant_answer()) judged.constant[metric.spec.name] = metric.value;
  return judged;
}

// By its definition: over all pairs of one of each class.
double pairs_in_order(const std::vector<Row>& rows) {
  double right = 0, pairs = 0;
  for (const Row& one : rows)
    for (const Row& other : rows)
      if (one.label == 1 && other.label == 0) {
        right += one.score > other.score ? 1 : one.score == other.score ? 0.5 : 0;
        ++pairs;
      }
  return right / pairs;
}

// Precision and recall of class 1, and their harmonic mean.
double harmonic_mean(const std::vector<Row>& rows) {
  double right = 0, given = 0, meant = 0;
  for (const Row& row : rows) {
    right += row.score > 0 && row.label == 1 ? 1 : 0;
    given += row.score > 0 ? 1 : 0;
    meant += row.label == 1 ? 1 : 0;
  }
  return 2 / (given / right + meant / right);
}

// Scores in eighths, so that many are equal.
std::vector<Row> made(size_t count) {
  std::vector<Row> rows;
  for (size_t i = 0; i < count; ++i) {
    const int64_t label = (i * 7) % 10 < 4 ? 1 : 0;
    rows.push_back({std::round(8 * std::sin(static_cast<double>(i * i)) + 2 * static_cast<double>(label)) / 8, label});
  }
  return rows;
}

}  // namespace

TEST_CASE("AUC is the share of pairs in the right order, equal scores half; F1 the harmonic mean") {
  const std::vector<Row> rows = made(101), reversed(rows.rbegin(), rows.rend());
  const double auc = pairs_in_order(rows), f1 = harmonic_mean(rows);
  REQUIRE((auc > 0.52 && auc < 0.9 && f1 > 0.2 && f1 < 0.9));
  for (const char* kind : {"binary", "classification"})
    for (const int64_t batch : {101, 16, 1}) {
      CAPTURE(kind, batch);
      CHECK(judge(kind, rows, batch).metrics["auc"] == Approx(auc).epsilon(1e-14));
      CHECK(judge(kind, reversed, batch).metrics["auc"] == Approx(auc).epsilon(1e-14));
      CHECK(judge(kind, rows, batch).metrics["f1"] == Approx(f1).epsilon(1e-14));
    }
}

TEST_CASE("AUC and F1 by hand") {
  // Pairs of 1 and 0: (2, 1), (2, -1) in order, (-1, 1) not, (-1, -1) equal: 2.5 of 4. One of two is found, one too
  // many.
  TwoClassScore judged = judge("binary", {{2, 1}, {1, 0}, {-1, 1}, {-1, 0}}, 3);
  CHECK(judged.metrics["auc"] == 2.5 / 4);
  CHECK(judged.metrics["f1"] == 0.5);
  CHECK(judged.metrics["accuracy"] == 0.5);
  judged = judge("binary", {{2, 1}, {1, 1}, {-1, 0}}, 2);
  CHECK((judged.metrics["auc"] == 1 && judged.metrics["f1"] == 1));
  judged = judge("binary", {{-2, 1}, {1, 0}}, 2);
  CHECK((judged.metrics["auc"] == 0 && judged.metrics["f1"] == 0));
}

TEST_CASE("where a class does not occur nothing is told apart, and a score that is no number is the lowest") {
  TwoClassScore judged = judge("binary", {{-2, 0}, {-1, 0}}, 2);
  CHECK((judged.metrics["auc"] == 0.5 && judged.metrics["f1"] == 0));
  judged = judge("binary", {{2, 1}, {-1, 1}}, 2);
  CHECK((judged.metrics["auc"] == 0.5 && judged.metrics["f1"] == Approx(2.0 / 3)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(judge("binary", {{nan, 0}, {-5, 1}, {nan, 1}, {3, 0}}, 4).metrics["auc"] == 1.5 / 4);
}

TEST_CASE("the best constant answer is that of the best constant scores") {
  for (const char* kind : {"binary", "classification"}) {
    CAPTURE(kind);
    const std::vector<Row> rows = made(50);
    TwoClassScore constant = judge(kind, rows, 16);
    for (const char* metric : {"accuracy", "auc", "f1"}) {
      double best = 0;
      for (const double score : {-1.0, 1.0}) {
        std::vector<Row> same = rows;
        for (Row& row : same) row.score = score;
        best = std::max(best, judge(kind, same, 16).metrics.at(metric));
      }
      CAPTURE(metric);
      CHECK(constant.constant.at(metric) == Approx(best));
    }
  }
}

TEST_CASE("Gini is 2 AUC - 1, the headline where the data asks for it and nowhere else", "[gini]") {
  CHECK(metric_specs(*make_task(shape_of("binary"))).front() == accuracy_metric());
  CHECK(judge("binary", made(10), 4).metrics.count("gini") == 0);
  data::DataShape shape = shape_of("binary");
  shape.target.parameters["headline"] = "gini";
  const auto task = make_task(shape);
  CHECK(metric_specs(*task).front() == gini_metric());
  const auto gini = [&](const std::vector<Row>& rows) {
    const auto meter = gini_meter([](const at::Tensor& logits) { return logits.squeeze(-1); });
    data::HostBatch host;
    host.reset(shape, static_cast<int64_t>(rows.size()), 1);
    for (size_t i = 0; i < rows.size(); ++i) host.whole("label")[i] = rows[i].label;
    meter->add(outputs_of("binary", rows), host);
    return meter->value({});
  };
  const std::vector<Row> rows = made(101);
  CHECK(gini(rows) == Approx(2 * pairs_in_order(rows) - 1).epsilon(1e-13));
  CHECK(gini({{2, 1}, {1, 0}, {-1, 1}, {-1, 0}}) == 0.25);  // 2.5 of 4 pairs
  CHECK(gini({{2, 1}, {1, 1}, {-1, 0}}) == 1);
  CHECK(gini({{-2, 1}, {1, 0}}) == -1);
  CHECK(gini({{0.5, 1}, {0.5, 0}, {0.5, 0}}) == 0);  // of constant scores
  CHECK(judge("binary", rows, 16, "gini").constant.at("gini") == 0);
  CHECK(judge("binary", rows, 16).constant.count("gini") == 0);
}

TEST_CASE("of more than two classes there is neither") {
  const data::DataShape shape{.max_len = 1, .vocabulary = 3, .target = data::class_target(3)};
  for (const MetricSpec& metric : metric_specs(*make_task(shape)))
    CHECK_FALSE((metric == auc_metric() || metric == f1_metric()));
  CHECK(metric_specs(*make_task(shape_of("classification"))).front() == accuracy_metric());
}

TEST_CASE("the data may name AUC or F1 as the headline, and the values stay each metric's own") {
  const auto names = [](const data::DataShape& shape) {
    std::vector<std::string> result;
    for (const MetricSpec& metric : metric_specs(*make_task(shape))) result.push_back(metric.name);
    return result;
  };
  data::DataShape shape = shape_of("classification");
  CHECK(names(shape) == std::vector<std::string>{"accuracy", "auc", "f1"});
  shape.target.parameters["headline"] = "auc";
  CHECK(names(shape) == std::vector<std::string>{"auc", "accuracy", "f1"});
  shape.target.parameters["headline"] = "f1";
  CHECK(names(shape) == std::vector<std::string>{"f1", "accuracy", "auc"});
  shape.target.parameters["headline"] = "recall";
  CHECK_THROWS_AS(names(shape), InternalError);
  const std::vector<Row> rows = made(50);
  const std::map<std::string, double> usual = judge("classification", rows, 16).metrics;
  for (const char* headline : {"auc", "f1"}) {
    const std::map<std::string, double> other = judge("classification", rows, 16, headline).metrics;
    CHECK(other == usual);
  }
}

}  // namespace xformer::two_classes_test
