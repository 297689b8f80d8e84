// Recorded work: when it is recorded, what a failure does, and that a training step is work of that kind.
#include "training/replay.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "inspect/tiny.h"
#include "kernels/policy_scope.h"
#include "scratch.h"
#include "tensor/op_counter.h"
#include "tensor/recording_scope.h"
#include "training/evaluator.h"

namespace xformer::training {

namespace {

Recorder failing(bool required, std::vector<std::string>& said) {
  Recorder recorder;
  recorder.record = [](const std::function<void()>&) -> std::unique_ptr<Recording> {
    TORCH_CHECK(false, "operation not permitted when stream is capturing");
  };
  recorder.required = required;
  recorder.say = [&said](const std::string& line) { said.push_back(line); };
  return recorder;
}

// Calls the work as a capture does.
Recorder counting(int& records, int& replays) {
  Recorder recorder;
  recorder.record = [&](const std::function<void()>& work) {
    ++records;
    work();
    struct Counted : Recording {
      explicit Counted(int& count) : count_(count) {}
      void replay() override { ++count_; }
      int& count_;
    };
    return std::make_unique<Counted>(replays);
  };
  return recorder;
}

// Batch `number` of the tiny task, of 8 rows; the last ones are missing from odd numbers.
data::HostBatch marks_batch(int64_t number, int64_t length = 16) {
  data::BatchRows rows{{}, length};
  for (int64_t row = 0; row < (number % 2 == 0 ? 8 : 5); ++row) rows.rows.push_back(number * 8 + row);
  data::HostBatch batch;
  data::fill_batch(inspect::MarkTask(), data::Split::kTrain, rows, 8, batch);
  return batch;
}

}  // namespace

TEST_CASE("work runs plainly at first, is recorded once, and replayed from then on") {
  int calls = 0, records = 0, replays = 0;
  const Recorder recorder = counting(records, replays);
  Replay replay(
      "work", [&] { ++calls; }, recorder);
  for (int i = 0; i < 3; ++i) {
    replay.run();
    CHECK_FALSE(replay.recorded());
  }
  CHECK(calls == 3);
  for (int i = 0; i < 4; ++i) replay.run();
  CHECK(replay.recorded());
  CHECK(records == 1);
  CHECK(calls == 4);
  CHECK(replays == 4);
}

TEST_CASE("work of a model whose other work had its plain runs is recorded at once") {
  int records = 0, replays = 0, calls = 0;
  bool recording = false;
  Recorder recorder = counting(records, replays);
  recorder.prepared = std::make_shared<bool>(false);
  Replay first(
      "step", [&] { recording = RecordingScope::any(); }, recorder);
  Replay second(
      "evaluation", [&] { ++calls; }, recorder);
  for (int i = 0; i < Replay::kPlainRuns; ++i) first.run();
  CHECK_FALSE(recording);
  first.run();
  CHECK(recording);
  CHECK_FALSE(RecordingScope::any());
  second.run();
  CHECK(second.recorded());
  CHECK(calls == 1);
  CHECK(records == 2);
  CHECK(replays == 2);
  // Of another model.
  Recorder other = counting(records, replays);
  other.prepared = std::make_shared<bool>(false);
  Replay third(
      "step", [&] { ++calls; }, other);
  third.run();
  CHECK_FALSE(third.recorded());
}

TEST_CASE("what cannot be recorded at once has its plain runs first, and no word is said of it") {
  std::vector<std::string> said;
  for (const bool required : {false, true}) {
    Recorder recorder = failing(required, said);
    recorder.prepared = std::make_shared<bool>(true);
    int calls = 0, tries = 0;
    recorder.record = [&, fail = recorder.record](const std::function<void()>& work) {
      ++tries;
      return fail(work);
    };
    Replay replay(
        "step", [&] { ++calls; }, recorder);
    for (int i = 0; i < Replay::kPlainRuns; ++i) replay.run();
    CHECK(calls == Replay::kPlainRuns);
    CHECK(tries == 1);
    CHECK(said.size() == (required ? 1 : 0));
    if (required) CHECK_THROWS_AS(replay.run(), ResourceError);
    else replay.run();
    CHECK(tries == 2);
  }
  CHECK(said.size() == 1);
}

TEST_CASE("the step of the longest batch is recorded before those of shorter ones") {
  const auto model = inspect::build_tiny_model("softmax");
  plan::TrainingOptions options;
  options.batch = 8;
  Recorder recorder = host_recorder();
  recorder.prepared = std::make_shared<bool>(false);
  TrainStep step(*model, inspect::MarkTask().info().shape, options, at::kCPU, recorder);
  step.expect(16);
  for (int64_t i = 0; i < Replay::kPlainRuns; ++i) step.run(marks_batch(0, 8), i, {});
  CHECK(step.recorded() == 0);
  step.run(marks_batch(0, 8), 3, {});
  CHECK(step.recorded() == 2);
  step.run(marks_batch(0, 16), 4, {});
  CHECK(step.recorded() == 2);
}

TEST_CASE(
    "work that cannot be recorded runs plainly, with the reason said once; where recording is required it is an "
    "error") {
  std::vector<std::string> said;
  int calls = 0;
  Replay replay(
      "training step of length 7", [&] { ++calls; }, failing(false, said));
  for (int i = 0; i < 6; ++i) replay.run();
  CHECK(calls == 6);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("training step of length 7") != std::string::npos);
  CHECK(said[0].find("not permitted when stream is capturing") != std::string::npos);

  Replay strict(
      "training step of length 7", [&] { ++calls; }, failing(true, said));
  for (int i = 0; i < 3; ++i) strict.run();
  const std::string message = scratch::message_of<ResourceError>([&] { strict.run(); });
  CHECK(message.find("--cuda-graph on") != std::string::npos);
}

TEST_CASE("running out of memory while recording is not a reason to go on plainly") {
  Recorder recorder;
  recorder.record = [](const std::function<void()>&) -> std::unique_ptr<Recording> {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory");
  };
  Replay replay(
      "work", [] {}, recorder);
  for (int i = 0; i < 3; ++i) replay.run();
  CHECK_THROWS_AS(replay.run(), c10::OutOfMemoryError);
}

TEST_CASE("a device that is lost while recording is told of at once; what only capture refuses runs plainly") {
  for (const bool prepared : {false, true}) {
    int calls = 0;
    int32_t code = 0;
    const auto replayed = [&] {
      Recorder recorder;
      recorder.prepared = std::make_shared<bool>(prepared);
      recorder.record = [&](const std::function<void()>&) -> std::unique_ptr<Recording> {
        throw c10::AcceleratorError({__func__, __FILE__, 1}, code, "CUDA error");
      };
      Replay replay(
          "work", [&] { ++calls; }, recorder);
      for (int i = 0; i <= Replay::kPlainRuns; ++i) replay.run();
    };
    for (const int32_t lost : {700, 719}) {
      code = lost;
      calls = 0;
      CHECK_THROWS_AS(replayed(), c10::AcceleratorError);
      CHECK(calls == (prepared ? 0 : Replay::kPlainRuns));
    }
    code = 900;  // not permitted while a stream is captured
    calls = 0;
    replayed();
    CHECK(calls == Replay::kPlainRuns + 1);
  }
}

TEST_CASE("--cuda-graph: words, and what a CPU makes of them") {
  CHECK_THROWS_AS(make_recorder("yes", at::kCPU, {}), UserError);
  CHECK_THROWS_AS(make_recorder("on", at::kCPU, {}), UserError);
  CHECK_FALSE(make_recorder("auto", at::kCPU, {}).record);
  CHECK_FALSE(make_recorder("off", at::Device("cuda:0"), {}).record);
  CHECK(make_recorder("auto", at::Device("cuda:0"), {}).record);
  CHECK(make_recorder("on", at::Device("cuda:0"), {}).required);
}

TEST_CASE("nothing is recorded under --kernels check, which compares on the host") {
  const kernels::PolicyScope policy(kernels::Policy::kCheck);
  CHECK_FALSE(make_recorder("auto", at::Device("cuda:0"), {}).record);
  CHECK_THROWS_AS(make_recorder("on", at::Device("cuda:0"), {}), UserError);
}

// The counted call is the recorded work alone. Without our kernels, as a device runs it that has none.
void check_nothing_read_back(const std::string& name, const std::string& precision) {
  INFO(name << " " << precision);
  const kernels::PolicyScope policy(kernels::Policy::kComposite);
  const auto model = inspect::build_tiny_model(name);
  plan::TrainingOptions options;
  options.batch = 8;
  options.micro_batch = 4;
  options.clip_norm = 1;
  options.precision = precision;
  int64_t counted = 0, reads = 0;
  Recorder recorder;
  recorder.record = [&](const std::function<void()>& work) {
    const OpCounter counter;
    work();
    ++counted;
    reads += counter.counts().reads;
    return host_recorder().record(work);
  };
  TrainStep step(*model, inspect::MarkTask().info().shape, options, at::kCPU, recorder);
  for (int64_t i = 0; i < 4; ++i) step.run(marks_batch(0), i, {1e-3, 0.9});
  EvaluationRequest request;
  request.batch = 128;
  request.padded_len = 16;
  request.precision = precision;
  CHECK(Evaluator(*model, tasks::make_task(inspect::MarkTask().info().shape), at::kCPU, recorder)
            .run(inspect::MarkTask(), request)
            ->examples == 512);
  CHECK(counted == 2);
  CHECK(reads == 0);
}

TEST_CASE("nothing in a training step or an evaluation batch reads a value back") {
  for (const std::string& name : attention::all_names()) check_nothing_read_back(name, "fp32");
  for (const char* precision : {"bf16", "fp16"}) check_nothing_read_back("mrs-linformer", precision);
}

TEST_CASE("evaluations of changed weights through one evaluator equal fresh ones, recorded or not") {
  const auto model = inspect::build_tiny_model("mrs-linformer");
  const auto task = [] { return tasks::make_task(inspect::MarkTask().info().shape); };
  Evaluator kept(*model, task(), at::kCPU, host_recorder());
  plan::TrainingOptions options;
  options.batch = 8;
  TrainStep step(*model, inspect::MarkTask().info().shape, options, at::kCPU);
  for (const int64_t batch : {100, 64}) {  // the first leaves a partial batch
    EvaluationRequest request;
    request.batch = batch;
    request.padded_len = 16;
    for (int64_t round = 0; round < 3; ++round) {
      const auto ours = task()->answers(), fresh = task()->answers();
      request.answers = ours.get();
      const auto first = kept.run(inspect::MarkTask(), request);
      request.answers = fresh.get();
      const auto second = Evaluator(*model, task(), at::kCPU).run(inspect::MarkTask(), request);
      CHECK(first->loss == second->loss);
      CHECK(first->headline().value == second->headline().value);
      const scratch::Folder folder;
      ours->write(folder / "ours", {});
      fresh->write(folder / "fresh", {});
      CHECK(scratch::get(folder / "ours") == scratch::get(folder / "fresh"));
      CHECK(std::ranges::count(scratch::get(folder / "ours"), '\n') == 513);
      step.run(marks_batch(round), round, {1e-2, 0.9});
    }
  }
}

}  // namespace xformer::training
