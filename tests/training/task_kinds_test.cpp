// A kind of task made here, with a weight of its own, a metric that gathers on the host and one that the device sums:
// evaluator and step know nothing of kinds but what tasks/task.h says.
#include <ATen/Functions.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "inspect/tiny.h"
#include "training/evaluator.h"

namespace xformer::training {

namespace {

const MetricSpec kAuc{"auc", "AUC", "", true, 3}, kShare{"weighted_share", "share", "%", true, 1};

// The probability that an example of class 0 has a higher score 0 than one of another class.
class Auc : public tasks::Meter {
 public:
  Auc() : Meter(kAuc) {}
  bool on_host() const override { return true; }
  void add(const at::Tensor& outputs, const data::HostBatch& batch) override {
    for (int64_t row = 0; row < outputs.size(0); ++row)
      (batch.whole("label")[static_cast<size_t>(row)] == 0 ? own_ : others_).push_back(outputs[row][0].item<float>());
  }
  double value(const tasks::Totals&) const override {
    double above = 0;
    for (const float one : own_)
      for (const float other : others_) above += one > other ? 1 : one == other ? 0.5 : 0;
    return above / static_cast<double>(own_.size() * others_.size());
  }

 private:
  std::vector<float> own_, others_;
};

// Rows count 1 to 4 times, by label.
at::Tensor weights(const tasks::BatchView& batch) { return batch.row_valid * (batch.field("label") + 1); }

class Weighted : public tasks::Task {
 public:
  tasks::OutputSpec output() const override { return {4}; }
  at::Tensor weight(const tasks::BatchView& batch) const override { return weights(batch).sum(at::kDouble); }
  at::Tensor loss(const at::Tensor& outputs, const tasks::BatchView& batch) const override {
    return (at::cross_entropy_loss(outputs, batch.field("label"), {}, at::Reduction::None) * weights(batch)).sum();
  }
  tasks::MeterList meters() const override {
    tasks::MeterList result;
    result.push_back(std::make_unique<Auc>());
    result.push_back(tasks::mean_meter(kShare, [](const at::Tensor& outputs, const tasks::BatchView& batch) {
      return (outputs.argmax(-1).eq(batch.field("label")) * weights(batch)).sum();
    }));
    return result;
  }
  std::unique_ptr<tasks::Answers> answers() const override { return nullptr; }
};

// The first rows of the tiny task in a batch of eight.
data::HostBatch batch_of(int64_t filled) {
  data::BatchRows rows{{}, 16};
  for (int64_t row = 0; row < filled; ++row) rows.rows.push_back(row);
  data::HostBatch batch;
  data::fill_batch(inspect::MarkTask(), data::Split::kTrain, rows, 8, batch);
  return batch;
}

StepSums sums_of(int64_t filled, int64_t micro_batch) {
  const auto model = inspect::build_tiny_model("softmax");
  plan::TrainingOptions options;
  options.micro_batch = micro_batch;
  TrainStep step(*model, inspect::MarkTask().info().shape, std::make_unique<Weighted>(), options, at::kCPU);
  step.run(batch_of(filled), 0, {1e-3, 0.9});
  return step.read_and_reset();
}

}  // namespace

TEST_CASE("an evaluation has every metric of its kind, the host's over all examples at once") {
  const auto model = inspect::build_tiny_model("softmax");
  const inspect::MarkTask source;
  const auto evaluate = [&](int64_t batch) {
    EvaluationRequest request;
    request.batch = batch;
    request.padded_len = 16;
    return *Evaluator(*model, std::make_unique<Weighted>(), at::kCPU).run(source, request);
  };
  const Evaluation whole = evaluate(512), parts = evaluate(100);  // of which the last is partial
  REQUIRE(parts.metrics.size() == 2);
  CHECK((parts.headline().spec == kAuc && parts.metrics[1].spec == kShare));
  for (size_t i = 0; i < 2; ++i) CHECK(parts.metrics[i].value == Approx(whole.metrics[i].value).epsilon(1e-6));
  CHECK(parts.loss == Approx(whole.loss).epsilon(1e-6));

  // The same from the outputs of all examples at once.
  const at::NoGradGuard no_grad;
  data::BatchRows rows{{}, 16};
  for (int64_t row = 0; row < 512; ++row) rows.rows.push_back(row);
  data::HostBatch host;
  data::fill_batch(source, data::Split::kDev, rows, 512, host);
  tasks::DeviceBatch batch(at::kCPU, 512, 16, source.info().shape);
  batch.load(host);
  const tasks::BatchView& view = batch.widened();
  const at::Tensor outputs = model->forward(view.inputs), labels = view.field("label");
  const at::Tensor score = outputs.select(1, 0), own = score.masked_select(labels.eq(0)),
                   others = score.masked_select(labels.gt(0));
  CHECK(whole.metrics[0].value == Approx((own.unsqueeze(1) > others).to(at::kDouble).mean().item<double>()));
  const at::Tensor weight = (labels + 1).to(at::kDouble), right = outputs.argmax(1).eq(labels);
  CHECK(whole.metrics[1].value == Approx(((right * weight).sum() / weight.sum()).item<double>()));
  const at::Tensor losses = -outputs.log_softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1);
  CHECK(whole.loss == Approx(((losses * weight).sum() / weight.sum()).item<double>()).epsilon(1e-6));
}

TEST_CASE("a step's device sums have the layout of every checkpoint so far: five numbers, whatever the kind") {
  const auto model = inspect::build_tiny_model("softmax");
  data::DataShape shape = inspect::MarkTask().info().shape;
  for (const data::TargetSpec& target : {data::class_target(4), data::class_target(9, {.top5 = true}),
                                         data::binary_target(), data::number_target(2), data::number_target(2, 0.5)}) {
    shape.target = target;
    CHECK(TrainStep(*model, shape, {}, at::kCPU).meter().numel() == 5);
  }
}

TEST_CASE("a training step shows the first metric that it can sum") {
  const StepSums sums = sums_of(8, 0);
  REQUIRE(sums.metric);
  CHECK(sums.metric->spec == kShare);
}

TEST_CASE("a loss is divided by the weight of the whole batch, not by rows, in micro-batches of any size") {
  for (const int64_t filled : {8, 5}) {
    const data::HostBatch host = batch_of(filled);
    double weight = 0;
    for (int64_t row = 0; row < filled; ++row)
      weight += static_cast<double>(host.whole("label")[static_cast<size_t>(row)] + 1);
    const auto model = inspect::build_tiny_model("softmax");
    model->train();
    model->dropout_stream()->set_step(0);
    tasks::DeviceBatch batch(at::kCPU, 8, 16, inspect::MarkTask().info().shape);
    batch.load(host);
    const tasks::BatchView& view = batch.widened();
    const at::Tensor loss = Weighted().loss(model->forward(view.inputs), view) / weight;
    loss.backward();
    double square = 0;
    for (const auto& [name, parameter] : models::trainable(*model))
      if (parameter.grad().defined()) square += parameter.grad().square().sum().item<double>();
    for (const int64_t micro_batch : {0, 1, 3}) {
      const StepSums sums = sums_of(filled, micro_batch);
      CHECK(sums.weight == weight);
      CHECK(sums.loss == Approx(loss.item<double>()).epsilon(1e-5));
      CHECK(sums.gradient_norm == Approx(std::sqrt(square)).epsilon(1e-4));
    }
  }
}

}  // namespace xformer::training
