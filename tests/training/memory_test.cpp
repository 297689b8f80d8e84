// Models that remember from batch to batch: the step keeps it in fixed places, checkpoints hold it, evaluations begin
// afresh or go on, as the task says.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/random.h"
#include "inspect/tiny.h"
#include "kernels/dropout/dropout.h"
#include "scratch.h"
#include "training/evaluator.h"

namespace xformer::training::memory_test {

namespace {

constexpr int64_t kBatch = 8, kSteps = 14;

// Scores of the batch's and of a fading sum of earlier batches' embedded tokens, with dropout.
class RunningSum : public models::Model {
 public:
  RunningSum() : Model(5), dropout_(0.2, dropout_stream()) {
    const InitStream init(5);
    table_ = register_parameter("table", init.normal("table", {10, 6}, 1));
    out_ = register_parameter("out", init.normal("out", {4, 6}, 1));
  }
  at::Tensor forward(const models::ModelInput& input, models::State& state) override {
    const at::Tensor now = at::embedding(table_, input.tokens).mean(1);
    at::Tensor& sum = state.at("sum");
    sum = 0.5 * sum + now;
    return at::matmul(dropout_(sum, is_training()), out_.t());
  }
  [[nodiscard]] models::State init_state(int64_t batch) const override {
    return {{"sum", at::full({batch, 6}, 0.25, table_.options().requires_grad(false))}};
  }
  [[nodiscard]] attention::Cost cost(int64_t, int64_t) const override { return {}; }

 private:
  kernels::Dropout dropout_;
  at::Tensor table_, out_;
};

// Of data that is read in lanes.
data::DataShape shape() {
  data::DataShape result = inspect::MarkTask().info().shape;
  result.target.parameters["lanes"] = true;
  return result;
}

data::HostBatch batch_of(int64_t step) {
  data::BatchRows rows{{}, 16};
  for (int64_t row = 0; row < kBatch; ++row) rows.rows.push_back(step * kBatch + row);
  data::HostBatch batch;
  data::fill_batch(inspect::MarkTask(), data::Split::kTrain, rows, kBatch, batch);
  return batch;
}

// A process: a model and its step, taken up from a checkpoint's bytes or begun.
struct Process {
  std::shared_ptr<RunningSum> model = std::make_shared<RunningSum>();
  TrainStep step;

  explicit Process(const Recorder& recorder, int64_t micro_batch = 0, const data::DataShape& data = shape())
      : step(*model, data, options(micro_batch), at::kCPU, recorder) {}
  static plan::TrainingOptions options(int64_t micro_batch) {
    plan::TrainingOptions result;
    result.batch = kBatch;
    result.micro_batch = micro_batch;
    return result;
  }
  void run(int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) step.run(batch_of(i), i, {1e-2, 0.9});
  }
};

bool same(const NamedTensors& a, const NamedTensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].first != b[i].first || !a[i].second.equal(b[i].second)) return false;
  return true;
}

// The kind of the tiny task, but its evaluation batches go on where the one before ended.
class Carrying : public tasks::Task {
 public:
  [[nodiscard]] tasks::OutputSpec output() const override {
    tasks::OutputSpec result = own_->output();
    result.carries_state = true;
    return result;
  }
  [[nodiscard]] at::Tensor weight(const tasks::BatchView& batch) const override { return own_->weight(batch); }
  [[nodiscard]] at::Tensor loss(const at::Tensor& outputs, const tasks::BatchView& batch) const override {
    return own_->loss(outputs, batch);
  }
  [[nodiscard]] tasks::MeterList meters() const override { return own_->meters(); }
  [[nodiscard]] std::unique_ptr<tasks::Answers> answers() const override { return own_->answers(); }

 private:
  std::unique_ptr<tasks::Task> own_ = tasks::make_task(shape());
};

}  // namespace

TEST_CASE("a model that remembers, stopped at any steps and taken up from checkpoints, ends in the same bits") {
  for (const bool recorded : {false, true})
    for (const int64_t micro_batch : {int64_t{0}, int64_t{3}}) {
      const Recorder recorder = recorded ? host_recorder() : Recorder{};
      Process straight({}, micro_batch);
      straight.run(0, kSteps);
      // What is remembered moves the loss: without it, other weights.
      Process forgetful({}, micro_batch);
      for (int64_t i = 0; i < kSteps; ++i) {
        at::Tensor(forgetful.step.memory().at("sum")).fill_(0.25);
        forgetful.run(i, i + 1);
      }
      CHECK_FALSE(same(forgetful.step.tensors(), straight.step.tensors()));

      Stream numbers(17);
      for (int trial = 0; trial < 6; ++trial) {
        const scratch::Folder folder;
        auto process = std::make_unique<Process>(recorder, micro_batch);
        const at::Tensor place = process->step.memory().at("sum");
        const void* const where = place.data_ptr();
        for (int64_t done = 0; done < kSteps;) {
          const int64_t last = std::min<int64_t>(kSteps, done + 1 + static_cast<int64_t>(numbers.next_below(6)));
          process->run(done, last);
          if (done == 0) CHECK(process->step.memory().at("sum").data_ptr() == where);
          done = last;
          write_tensor_file(folder / "checkpoint", process->step.tensors(), {});
          process = std::make_unique<Process>(recorder, micro_batch);
          process->step.restore(read_tensor_file(folder / "checkpoint").tensors, "checkpoint");
        }
        CHECK(same(process->step.tensors(), straight.step.tensors()));
      }
    }
}

TEST_CASE("batches that are no lanes begin afresh, each of them, and keep nothing", "[lanes]") {
  for (const int64_t micro_batch : {int64_t{0}, int64_t{3}}) {
    Process forgetful({}, micro_batch), unrelated({}, micro_batch, inspect::MarkTask().info().shape);
    for (int64_t i = 0; i < kSteps; ++i) {
      at::Tensor(forgetful.step.memory().at("sum")).fill_(0.25);
      forgetful.run(i, i + 1);
    }
    unrelated.run(0, kSteps);
    CHECK(unrelated.step.memory().empty());
    NamedTensors kept = forgetful.step.tensors();
    kept.pop_back();  // what it remembered
    CHECK(same(kept, unrelated.step.tensors()));
  }
}

TEST_CASE("a recorded step remembers what a plain one does, and micro-batches remember their own rows") {
  Process plain({}), recorded(host_recorder());
  plain.run(0, kSteps);
  recorded.run(0, kSteps);
  CHECK(recorded.step.recorded() == 1);
  CHECK(same(plain.step.tensors(), recorded.step.tensors()));
  // A first step's memory is the weights' before it, whatever the rows are cut into.
  Process whole({}), parts({}, 3);
  whole.run(0, 1);
  parts.run(0, 1);
  CHECK((whole.step.memory().at("sum") - parts.step.memory().at("sum")).abs().max().item<double>() < 1e-6);
}

TEST_CASE("a checkpoint without what the model remembers is refused") {
  Process process({});
  NamedTensors tensors = process.step.tensors();
  CHECK(tensors.back().first == "state.sum");
  const std::map<std::string, at::Tensor> less(tensors.begin(), tensors.end() - 1);
  const std::string message = scratch::message_of<DataError>([&] { process.step.restore(less, "the file"); });
  CHECK(message.find("the file: tensor state.sum") != std::string::npos);
}

TEST_CASE("evaluation batches begin afresh, or go on where the task says so, at every evaluation alike") {
  for (const bool carries : {false, true})
    for (const bool recorded : {false, true}) {
      const auto model = std::make_shared<RunningSum>();
      std::unique_ptr<tasks::Task> task = tasks::make_task(shape());
      if (carries) task = std::make_unique<Carrying>();
      Evaluator evaluator(*model, std::move(task), at::kCPU, recorded ? host_recorder() : Recorder{});
      EvaluationRequest request;
      request.batch = 64;
      request.padded_len = 16;
      const double first = evaluator.run(inspect::MarkTask(), request)->loss;
      CHECK(evaluator.run(inspect::MarkTask(), request)->loss == first);

      // By hand.
      const at::NoGradGuard no_grad;
      model->eval();
      models::State state = model->init_state(64);
      const auto own = tasks::make_task(shape());
      double sum = 0;
      for (int64_t index = 0; index < 8; ++index) {
        data::BatchRows rows{{}, 16};
        // In lanes each row reads eight examples that follow each other.
        for (int64_t row = 0; row < 64; ++row) rows.rows.push_back(carries ? row * 8 + index : index * 64 + row);
        data::HostBatch host;
        data::fill_batch(inspect::MarkTask(), request.split, rows, 64, host);
        tasks::DeviceBatch batch(at::kCPU, 64, 16, shape());
        batch.load(host);
        const tasks::BatchView& view = batch.widened();
        if (!carries) state = model->init_state(64);
        sum += own->loss(model->forward(view.inputs, state), view).item<double>();
      }
      CHECK(sum / 512 == Approx(first).epsilon(1e-6));
    }
}

}  // namespace xformer::training::memory_test
