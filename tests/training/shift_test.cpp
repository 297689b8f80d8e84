// The test of a run once more on shifted data: what its record says that this changes.
#include "data/shifted_source.h"

#include "core/text.h"
#include "run_setting.h"
#include "training/evaluator.h"
#include "training/trained_run.h"

namespace xformer::training {

using Catch::Matchers::Contains;

TEST_CASE("a run's record says what shifts of its test data change, as an evaluation of its weights has it") {
  Setting setting;
  // Long enough to tell places apart.
  Json more{{"training.learning_rate", 0.01}, {"training.steps", 40}, {"data.test_examples", 60}};
  const Json plain = setting.run(plan_with(more, "linformer"), setting.options("plain"));
  const RunOptions options = setting.options("a");
  more["eval.shifts"] = "roll, drop-newest";
  const RunPlan plan = plan_with(more, "linformer");
  Listener listener;
  const Json record = to_json(train(plan, options, listener));
  CHECK_THAT(listener.heard, Contains("test under roll: accuracy ") && Contains("test under drop-newest: accuracy "));
  CHECK(setting.content_hash("a") == setting.content_hash("plain"));
  CHECK(record["test"] == plain["test"]);
  REQUIRE(record["metrics"].size() == 4);
  CHECK(plain["metrics"].size() == 2);
  const TrainedRun run =
      open_run(options.out, data::Split::kTest, options.data, at::kCPU, setting.silent.data_progress(), [](auto&&) {});
  Evaluator evaluator(*run.model, tasks::make_task(run.source->info().shape), at::kCPU);
  EvaluationRequest request;
  request.split = data::Split::kTest;
  request.padded_len = plan::padded_len(run.plan, run.source->info().shape);
  bool some = false;
  for (const auto& [place, shift] : {std::pair{2, "roll"}, {3, "drop-newest"}}) {
    const Json& change = record["metrics"][static_cast<size_t>(place)];
    const auto moved = data::shifted(*run.source, data::parse_shift(shift));
    const double expected = evaluator.run(*moved, request)->headline().value - record["test"]["accuracy"].get<double>();
    CHECK(change["value"].get<double>() == Approx(expected).margin(1e-12));
    CHECK(change["title"] == fmt::format("change of accuracy by {}", shift));
    CHECK((change["unit"] == "%" && change["split"] == "test" && !change.contains("chance")));
    some |= expected != 0;
  }
  CHECK(some);  // or nothing was told
  CHECK(record["metrics"][2]["name"] == "accuracy_change_roll");
  CHECK(record["metrics"][3]["name"] == "accuracy_change_drop_newest");
}

TEST_CASE("shifts that there are not, or that a task has no use for, are refused with the plan") {
  const auto refusal = [](const std::string& task, const std::string& shifts) {
    plan::PlanRequest request;
    request.task = task;
    request.model = "linear";
    request.layers.push_back({"test", {{"eval.shifts", shifts}}});
    return scratch::message_of<UserError>([&] { static_cast<void>(plan::resolve_plan(request)); });
  };
  CHECK_THAT(refusal("listops", "roll,drop-nevest"), Contains("eval.shifts: ") && Contains("'drop-newest'"));
  CHECK_THAT(refusal("uea/JapaneseVowels", "drop-newest"),
             Contains("eval.shifts: drop-newest: in the task's sequences nothing"));
  CHECK_THAT(refusal("temporal-order", ""), !Contains("eval"));
}

TEST_CASE("the last line of the log on training is in the record, however often a run was stopped") {
  Setting setting;
  const RunPlan plan = plan_with();
  const Json whole = setting.run(plan, setting.options("whole"));
  double last = 0;
  for (const std::string_view line : split(read_file(setting.scratch / "whole" / "log.jsonl"), '\n'))
    if (const Json entry = Json::parse(line, nullptr, false); entry.is_object() && entry["event"] == "train")
      last = entry["loss"];
  CHECK(whole["train"] == Json({{"step", 12}, {"loss", last}}));
  // Stopped before the test of the trained weights: the last line was written by another process.
  RunOptions options = setting.options("parts");
  int64_t trained = 0;
  options.stop_requested = [&] { return trained == 12; };
  struct Counter : Observer {
    explicit Counter(int64_t& steps) : steps_(steps) {}
    void on_step(int64_t step, int64_t) override { steps_ = step; }
    int64_t& steps_;
  } counter(trained);
  CHECK_THROWS_AS(train(plan, options, counter), Interrupted);
  options.stop_requested = [] { return false; };
  const Json parts = setting.run(plan, options);
  CHECK(parts["resumed_at"] == Json({12}));
  CHECK(parts["train"] == whole["train"]);
}

}  // namespace xformer::training
