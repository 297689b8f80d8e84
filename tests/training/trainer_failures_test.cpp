// A device that fails in the middle of a run: the kind of error, what it says is kept, the record, and that the same
// plan goes on in the same bits.
#include <c10/util/Exception.h>

#include "run_setting.h"

namespace xformer::training {

namespace {

// Hears of a step as soon as it was asked for, as a device does.
struct FailingDevice : Observer {
  FailingDevice(int64_t at, std::function<void()> failure) : at_step(at), fail(std::move(failure)) {}
  void on_step(int64_t step, int64_t) override {
    if (step == at_step) fail();
  }
  int64_t at_step;
  std::function<void()> fail;
};

// By the number of the CUDA runtime's error, in LibTorch's words.
std::function<void()> cuda_error(int32_t code, const std::string& text) {
  return [=] {
    throw c10::AcceleratorError({__func__, __FILE__, 1}, code,
                                "CUDA error: " + text + "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1");
  };
}

void no_memory() { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB."); }
// As LibTorch says it where CUDA graphs hold some.
void no_memory_beside_graphs() {
  TORCH_CHECK_WITH(OutOfMemoryError, false,
                   "CUDA out of memory. Tried to allocate 2.00 GiB. Of the allocated memory 70.00 GiB is allocated by "
                   "PyTorch, with 30.00 GiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved.");
}

struct Failed {
  ExitCode code = ExitCode::kDone;
  bool out_of_memory = false;
  std::string message;
};

Failed failed_run(const RunPlan& plan, const RunOptions& options, FailingDevice device) {
  try {
    static_cast<void>(train(plan, options, device));
  } catch (const Error& error) {
    return {error.code(), dynamic_cast<const OutOfMemory*>(&error) != nullptr, error.what()};
  }
  return {};
}

// Records as a CPU can, but for what comes as number `at`, from 1.
Recorder failing_recorder(int64_t at, const std::function<void()>& fail) {
  Recorder recorder = host_recorder();
  recorder.record = [=, record = recorder.record, count = std::make_shared<int64_t>(0)](const auto& work) {
    if (++*count == at) fail();
    return record(work);
  };
  return recorder;
}

std::string kept(int64_t step) {
  return fmt::format(
      "; the last checkpoint, of step {}, is kept: the same command goes on from it; another --micro-batch or plan "
      "needs another --out",
      step);
}

int64_t newest_step(const Path& run) {
  const auto checkpoint = newest_checkpoint(run, [](const std::string& warning) { FAIL_CHECK(warning); });
  return checkpoint ? checkpoint->state.step : -1;
}

}  // namespace

TEST_CASE("a device that fails in a step costs that step alone, and says so in error and record") {
  struct Case {
    const char* name;
    std::function<void()> fail;
    ExitCode code;
    const char *status, *words;
  };
  const std::vector<Case> cases{
      {"launch", cuda_error(719, "unspecified launch failure"), ExitCode::kInternal, "failed",
       "the device refused what it was given: CUDA error: unspecified launch failure"},
      {"memory-gave-up", cuda_error(214, "uncorrectable ECC error encountered"), ExitCode::kResource, "failed",
       "the device failed: CUDA error: uncorrectable ECC error encountered"},
      {"out-of-memory", no_memory, ExitCode::kResource, "out-of-memory",
       "CUDA out of memory. Tried to allocate 2.00 GiB; a smaller --micro-batch needs less"},
      {"out-of-memory-graphs", no_memory_beside_graphs, ExitCode::kResource, "out-of-memory",
       "CUDA out of memory. Tried to allocate 2.00 GiB; a smaller --micro-batch or --cuda-graph off needs less"},
      {"out-of-memory-code", cuda_error(2, "out of memory"), ExitCode::kResource, "out-of-memory",
       "CUDA error: out of memory; a smaller --micro-batch needs less"},
      {"other", [] { TORCH_CHECK(false, "CUBLAS_STATUS_EXECUTION_FAILED"); }, ExitCode::kInternal, "failed",
       "LibTorch: CUBLAS_STATUS_EXECUTION_FAILED"},
  };
  Setting setting;
  const RunPlan plan = plan_with({{"model.dropout", 0.1}, {"training.selection", "last"}});
  static_cast<void>(setting.run(plan, setting.options("whole")));
  for (const Case& one : cases) {
    INFO(one.name);
    RunOptions options = setting.options(one.name);
    options.checkpoint_every = 1;
    const Failed failed = failed_run(plan, options, {9, one.fail});
    CHECK(failed.code == one.code);
    CHECK(failed.out_of_memory == (one.status == std::string("out-of-memory")));
    CHECK(failed.message == one.words + kept(8));
    const Json record = read_json_file(options.out / "record.json");
    CHECK(record["status"] == one.status);
    CHECK(record["message"] == failed.message);
    CHECK(record["steps"]["done"] == 9);
    CHECK(newest_step(options.out) == 8);

    const Json again = setting.run(plan, options);
    CHECK(again["status"] == "completed");
    CHECK(again["resumed_at"] == Json({8}));
    CHECK(setting.content_hash(one.name) == setting.content_hash("whole"));
    CHECK(read_file(options.out / "predictions.csv") == read_file(setting.scratch / "whole" / "predictions.csv"));
  }
}

TEST_CASE("a capture that fails in the middle of a run ends it, with the last checkpoint kept") {
  struct Case {
    const char* name;
    int64_t capture;      // 1: of the fourth training step; 2: of the evaluation behind it
    int64_t steps, step;  // done, and in the last checkpoint
    std::function<void()> fail;
    ExitCode code;
    const char *status, *words;
  };
  const char* const no_memory_words =
      "CUDA out of memory. Tried to allocate 2.00 GiB; a smaller --micro-batch or --cuda-graph off needs less";
  const char* const launch_words = "the device refused what it was given: CUDA error: unspecified launch failure";
  const auto launch = cuda_error(719, "unspecified launch failure");
  const std::vector<Case> cases{
      {"memory", 1, 3, 3, no_memory_beside_graphs, ExitCode::kResource, "out-of-memory", no_memory_words},
      {"memory-dev", 2, 4, 3, no_memory_beside_graphs, ExitCode::kResource, "out-of-memory", no_memory_words},
      {"launch", 1, 3, 3, launch, ExitCode::kInternal, "failed", launch_words},
      {"launch-dev", 2, 4, 3, launch, ExitCode::kInternal, "failed", launch_words},
  };
  Setting setting;
  const RunPlan plan = plan_with({{"model.dropout", 0.1}, {"training.selection", "last"}});
  static_cast<void>(setting.run(plan, setting.options("whole")));  // plain steps
  for (const Case& one : cases) {
    INFO(one.name);
    RunOptions options = setting.options(one.name);
    options.checkpoint_every = 1;
    options.recorder = failing_recorder(one.capture, one.fail);
    const Failed failed = failed_run(plan, options, {-1, {}});
    CHECK(failed.code == one.code);
    CHECK(failed.message == one.words + kept(one.step));
    const Json record = read_json_file(options.out / "record.json");
    CHECK(record["status"] == one.status);
    CHECK(record["message"] == failed.message);
    CHECK(record["steps"]["done"] == one.steps);
    CHECK(newest_step(options.out) == one.step);

    options.recorder = host_recorder();
    const Json again = setting.run(plan, options);
    CHECK(again["status"] == "completed");
    CHECK(again["resumed_at"] == Json({one.step}));
    CHECK(again["cuda_graph"]["captured_steps"] > 0);
    CHECK(setting.content_hash(one.name) == setting.content_hash("whole"));
    CHECK(read_file(options.out / "predictions.csv") == read_file(setting.scratch / "whole" / "predictions.csv"));
  }
}

TEST_CASE("the checkpoint that a failed run names is the one there is, an earlier process's too") {
  Setting setting;
  const RunPlan plan = plan_with({{"training.selection", "last"}});
  static_cast<void>(setting.run(plan, setting.options("whole")));
  const RunOptions options = setting.options("parts");  // checkpoints at 4 and 8, as it evaluates
  const auto fails_at = [&](int64_t step) { return failed_run(plan, options, {step, no_memory}).message; };
  CHECK_THAT(fails_at(3), Catch::EndsWith("; there is no checkpoint yet: the same command begins anew"));
  CHECK(newest_step(options.out) == -1);
  for (const int64_t step : {7, 5}) {
    CHECK_THAT(fails_at(step), Catch::EndsWith(kept(4)));
    CHECK(newest_step(options.out) == 4);
  }
  CHECK_THAT(fails_at(12), Catch::EndsWith(kept(8)));
  CHECK(setting.run(plan, options)["resumed_at"] == Json({0, 4, 8}));
  CHECK(setting.content_hash("parts") == setting.content_hash("whole"));
}

TEST_CASE("a run whose last steps were lost, too few for max_skips, diverged as well") {
  Setting setting;
  RunOptions options = setting.options("a");
  Json values{{"training.learning_rate", 1e30},
              {"training.schedule", "constant"},
              {"training.steps", 5},
              {"training.warmup", 0}};
  const auto diverged = [&](const char* split) {
    CHECK_THROWS_WITH(setting.run(plan_with(values), options),
                      Catch::Contains(fmt::format("the loss on {} of the weights of step ", split)));
    const Json record = read_json_file(options.out / "record.json");
    CHECK(record["status"] == "diverged");
    CHECK_FALSE(record.contains("test"));
    CHECK_FALSE(std::filesystem::exists(options.out / "model.safetensors"));
  };
  diverged("dev");
  diverged("dev");  // from the checkpoint of the last step
}

}  // namespace xformer::training
