// Answers at every place: loss, bits, perplexity and shares against sums in double, uniform models, what is written.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "scratch.h"
#include "tasks/task.h"

namespace xformer::tasks::per_position_test {

namespace {

constexpr int64_t kRows = 3, kPlaces = 4, kClasses = 5;
// Of three rows: the second has one place that is asked, the last is empty.
const std::vector<int64_t> kLabels{-1, 2, 0, 2, 4, -1, -1, -1, -1, -1, -1, -1};

data::DataShape shape_of(const data::PlaceTarget& target, int64_t classes = kClasses) {
  return {.max_len = kPlaces,
          .vocabulary = classes,
          .zero_is_padding = false,
          .target = data::place_target(classes, target)};
}

data::HostBatch host_batch(const data::DataShape& shape) {
  data::HostBatch batch;
  batch.reset(shape, kRows, kPlaces);
  batch.filled = 2;
  batch.whole("label") = kLabels;
  if (shape.target.has("words")) batch.whole("words") = {0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0};
  batch.key_valid = {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0};
  batch.row_valid = {1, 1, 0};
  batch.indices = {7, 3, -1};
  return batch;
}

at::Tensor scores() {
  return (at::arange(kRows * kPlaces * kClasses, at::kFloat) * 1.1).sin().view({kRows, kPlaces, kClasses});
}

// The definition, place by place: cross entropies, places and labels found.
struct Plain {
  double nats = 0, places = 0, right = 0;
};
Plain plain(const at::Tensor& outputs) {
  Plain result;
  for (size_t i = 0; i < kLabels.size(); ++i) {
    if (kLabels[i] < 0) continue;
    const float* const row = outputs.const_data_ptr<float>() + i * kClasses;
    double sum = 0;
    int64_t best = 0;
    for (int64_t c = 0; c < kClasses; ++c) {
      sum += std::exp(static_cast<double>(row[c]));
      if (row[c] > row[best]) best = c;
    }
    result.nats += std::log(sum) - static_cast<double>(row[kLabels[i]]);
    result.places += 1;
    result.right += best == kLabels[i] ? 1 : 0;
  }
  return result;
}

struct PlaceScore {
  double loss, weight;
  std::map<std::string, double> values;
  std::vector<Metric> metrics;
};
PlaceScore judge(const at::Tensor& outputs, const data::DataShape& shape) {
  DeviceBatch batch(at::kCPU, kRows, kPlaces, shape);
  batch.load(host_batch(shape));
  const BatchView& view = batch.widened();
  const auto task = make_task(shape);
  const Meters meters(task->meters());
  const at::Tensor loss = task->loss(outputs, view), weight = task->weight(view);
  const at::Tensor sums = meters.count(loss, weight, outputs, view);
  PlaceScore result{loss.item<double>(),
                    weight.item<double>(),
                    {},
                    meters.read({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())}).metrics};
  for (const Metric& metric : result.metrics) result.values[metric.spec.name] = metric.value;
  return result;
}

}  // namespace

TEST_CASE("an evaluation goes on from batch to batch under the protocol that remembers, and under no other",
          "[lanes]") {
  for (const char* scoring : {"window", "half", "stride 3", "memory"}) {
    const auto task = make_task(shape_of({.symbol = "byte", .scoring = scoring}));
    CHECK(task->output().carries_state == (std::string(scoring) == "memory"));
    CHECK(metric_specs(*task).front().title == fmt::format("bits/byte ({})", scoring));
  }
  CHECK_FALSE(make_task(shape_of({}))->output().carries_state);
}

TEST_CASE("the loss of places is a sum in double over those with a label, and their number its weight",
          "[per-position]") {
  const at::Tensor outputs = scores();
  const Plain meant = plain(outputs);
  REQUIRE((meant.places == 4 && meant.right > 0 && meant.right < 4));
  const PlaceScore recall = judge(outputs, shape_of({}));
  CHECK(recall.weight == 4);
  CHECK(recall.loss == Approx(meant.nats).epsilon(1e-6));
  CHECK(recall.metrics.front().spec == accuracy_metric());
  CHECK(recall.values.at("accuracy") == meant.right / 4);
  const PlaceScore text = judge(outputs, shape_of({.symbol = "byte", .scoring = "window"}));
  CHECK(text.metrics.front().spec.name == "bits_per_byte");
  CHECK(text.metrics.front().spec.heading() == "bits/byte (window)");
  CHECK_FALSE(text.metrics.front().spec.higher_is_better);
  CHECK(text.values.at("bits_per_byte") == Approx(meant.nats / 4 / std::log(2.0)).epsilon(1e-6));
  CHECK(text.values.at("perplexity") == Approx(std::exp(meant.nats / 4)).epsilon(1e-6));
  CHECK(text.values.at("accuracy") == meant.right / 4);
}

TEST_CASE("the perplexity of a model that is all wrong is still a number", "[per-position]") {
  const at::Tensor labels = at::tensor(kLabels, at::kLong).view({kRows, kPlaces, 1}).clamp_min(0);
  const at::Tensor outputs = at::full({kRows, kPlaces, kClasses}, 5000.0).scatter(2, labels, 0);
  const PlaceScore text = judge(outputs, shape_of({.symbol = "byte", .scoring = "window"}));
  CHECK(text.values.at("bits_per_byte") > 7000);
  CHECK(std::isfinite(text.values.at("perplexity")));
}

TEST_CASE("a model that gives every class the same score has log2 of their number in bits", "[per-position]") {
  for (const int64_t classes : {2, 27, 256}) {
    data::DataShape shape = shape_of({.symbol = "byte", .scoring = "half"}, classes);
    data::HostBatch host;
    host.reset(shape, 2, kPlaces);
    host.filled = 2;
    host.whole("label") = {0, classes - 1, 1, -1, 0, 0, 0, 0};
    DeviceBatch batch(at::kCPU, 2, kPlaces, shape);
    batch.load(host);
    const BatchView& view = batch.widened();
    const auto task = make_task(shape);
    const Meters meters(task->meters());
    const at::Tensor outputs = at::full({2, kPlaces, classes}, 0.25);
    const at::Tensor sums = meters.count(task->loss(outputs, view), task->weight(view), outputs, view);
    const auto reading = meters.read({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())});
    CHECK(reading.metrics.front().value == Approx(std::log2(static_cast<double>(classes))).epsilon(1e-6));
    CHECK(reading.metrics[1].value == Approx(static_cast<double>(classes)).epsilon(1e-5));
  }
}

TEST_CASE("empty rows and places without a label have no gradient, whatever stands there", "[per-position]") {
  const data::DataShape shape = shape_of({});
  DeviceBatch batch(at::kCPU, kRows, kPlaces, shape);
  batch.load(host_batch(shape));
  const at::Tensor outputs = scores().requires_grad_();
  make_task(shape)->loss(outputs, batch.widened()).backward();
  const at::Tensor moved = outputs.grad().abs().sum(-1).flatten() > 0;
  for (size_t i = 0; i < kLabels.size(); ++i) CHECK(moved[static_cast<int64_t>(i)].item<bool>() == (kLabels[i] >= 0));
  at::Tensor odd = scores();
  odd[2].fill_(std::numeric_limits<float>::quiet_NaN());
  CHECK(judge(odd, shape).loss == Approx(plain(scores()).nats).epsilon(1e-6));
}

TEST_CASE("a sequence counts as whole when all its labels are found, and not at all without one", "[per-position]") {
  at::Tensor outputs = at::zeros({kRows, kPlaces, kClasses});
  const auto answer = [&](int64_t row, int64_t place, int64_t label) { outputs[row][place][label] = 9; };
  answer(0, 1, 2), answer(0, 2, 0), answer(0, 3, 2), answer(1, 0, 3);
  const PlaceScore half = judge(outputs, shape_of({}));
  CHECK((half.values.at("whole_sequences") == 0.5 && half.values.at("accuracy") == 0.75));
  answer(0, 3, 1), outputs[0][3][2] = 0;
  CHECK(judge(outputs, shape_of({})).values.at("whole_sequences") == 0);
}

TEST_CASE("what is written of places is by sequence, and the best constant answer is their distribution",
          "[per-position]") {
  const scratch::Folder folder;
  const data::DataShape text = shape_of({.symbol = "byte", .scoring = "window"}), recall = shape_of({});
  const at::Tensor outputs = scores().narrow(0, 0, 2).contiguous();
  for (const data::DataShape& shape : {text, recall}) {
    const auto answers = make_task(shape)->answers();
    answers->add(outputs, host_batch(shape));
    answers->write(folder / "predictions.csv", {});
    const std::string written = scratch::get(folder / "predictions.csv");
    CHECK(written.starts_with("index,places,right,nats\n7,3,"));
    CHECK(written.find("\n3,1,") != std::string::npos);
    // Labels 2, 0, 2, 4: entropy of (1/2, 1/4, 1/4) is 1.5 bits.
    const std::vector<Metric> constant = answers->constant_answer();
    CHECK(constant.front().spec == make_task(shape)->meters().front()->spec());
    if (shape == text) {
      CHECK(constant[0].value == Approx(1.5));
      CHECK(constant[1].value == Approx(std::pow(2, 1.5)));
    }
    CHECK(constant.back().value == 0.5);
  }
}

TEST_CASE("losses that a model made itself count as those made of its scores", "[per-position]") {
  const at::Tensor outputs = scores(), labels = at::tensor(kLabels, at::kLong).view({kRows, kPlaces});
  const at::Tensor asked = labels >= 0;
  const at::Tensor nats = -outputs.log_softmax(-1).gather(2, labels.clamp_min(0).unsqueeze(2)).squeeze(2) * asked;
  const at::Tensor right = outputs.argmax(-1).eq(labels).to(at::kFloat);
  const at::Tensor made = at::stack({nats, right}, -1).unsqueeze(2);
  for (const data::DataShape& shape : {shape_of({}), shape_of({.symbol = "byte", .scoring = "window"})}) {
    const PlaceScore given = judge(outputs, shape), same = judge(made, shape);
    CHECK(same.loss == Approx(given.loss).epsilon(1e-6));
    CHECK(same.weight == given.weight);
    for (const auto& [name, value] : given.values) CHECK(same.values.at(name) == Approx(value).epsilon(1e-6));
  }
}

TEST_CASE("of pieces the perplexity comes first, and that of words is e to all losses over the words",
          "[per-position]") {
  const data::DataShape shape = shape_of({.symbol = "piece", .scoring = "window", .perplexity = true, .words = true});
  const at::Tensor outputs = scores();
  const Plain meant = plain(outputs);
  const PlaceScore text = judge(outputs, shape);
  CHECK(text.metrics.front().spec.name == "perplexity");
  CHECK(text.metrics.front().spec.heading() == "perplexity/piece (window)");
  CHECK(text.values.at("perplexity") == Approx(std::exp(meant.nats / 4)).epsilon(1e-6));
  CHECK(text.values.at("bits_per_piece") == Approx(meant.nats / 4 / std::log(2.0)).epsilon(1e-6));
  CHECK(text.values.at("word_perplexity") == Approx(std::exp(meant.nats / 3)).epsilon(1e-6));
  const auto answers = make_task(shape)->answers();
  answers->add(outputs.narrow(0, 0, 2).contiguous(), host_batch(shape));
  const std::vector<Metric> constant = answers->constant_answer();
  REQUIRE(constant.size() == text.metrics.size());
  for (size_t i = 0; i < constant.size(); ++i) CHECK(constant[i].spec == text.metrics[i].spec);
  CHECK(constant[0].value == Approx(std::pow(2, 1.5)));
  CHECK(constant[2].value == Approx(std::pow(2, 1.5 * 4 / 3)));
  // Scores that are all alike: as many as there are pieces, whatever they are.
  CHECK(judge(at::zeros({kRows, kPlaces, kClasses}), shape).values.at("perplexity") == Approx(5));
}

TEST_CASE("the kind asks for an answer at every place, from earlier ones alone where the data says so",
          "[per-position]") {
  const OutputSpec causal = make_task(shape_of({}))->output(), both = make_task(shape_of({.causal = false}))->output();
  CHECK((causal.per_position && causal.causal && causal.columns == kClasses));
  CHECK((both.per_position && !both.causal));
  const data::TargetSpec target = data::place_target(9, {.symbol = "byte", .scoring = "stride 3"});
  CHECK(data::target_from_json(data::target_to_json(target)) == target);
  CHECK((target.of_places() && target.classes() == 9 && !data::class_target(9).of_places()));
  CHECK_THROWS_AS(judge(at::zeros({kRows, kClasses}), shape_of({})), InternalError);
}

}  // namespace xformer::tasks::per_position_test
