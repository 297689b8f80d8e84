// Whole runs in a temporary folder: steps, epochs, patience, selection, refusals, damage, records.
#include "training/trainer.h"

#include <fstream>

#include "kernels/policy.h"
#include "run_setting.h"

namespace xformer::training {

TEST_CASE("a run ends in a record, predictions, weights and a log") {
  Setting setting;
  const Json record = setting.run(plan_with(), setting.options("a"));
  CHECK(record["status"] == "completed");
  CHECK(record["steps"]["done"] == 12);
  CHECK(record["dev"].size() == 3);
  CHECK(record["test"]["examples"] == 13);  // the remainder counts
  CHECK(record["selection"]["split"] == "dev");
  REQUIRE(record["metrics"].size() == 2);
  CHECK((record["metrics"][0]["split"] == "dev" && record["metrics"][1]["split"] == "test"));
  CHECK(record["metrics"][0]["value"] == record["selection"]["best"]["accuracy"]);
  CHECK(record["metrics"][1]["value"] == record["test"]["accuracy"]);
  CHECK(record["metrics"][1]["chance"] == record["chance"]);
  CHECK(record["data"]["sizes"]["train"] == 44);
  CHECK(record["flops_per_example"].get<double>() > 0);
  CHECK(record["peak_device_bytes"].get<int64_t>() >= 0);
  std::ifstream predictions(setting.scratch.path() / "a" / "predictions.csv");
  int lines = 0;
  for (std::string line; std::getline(predictions, line);) ++lines;
  CHECK(lines == 1 + 13);
  CHECK(std::filesystem::exists(setting.scratch.path() / "a" / "log.jsonl"));
}

TEST_CASE("the weights that are tested are the last or those of the best dev accuracy, and their step is named") {
  for (const char* rule : {"last", "best_dev"}) {
    Setting setting;
    const Json record = setting.run(plan_with({{"training.selection", rule}}), setting.options("a"));
    const Json expected = std::string(rule) == "last" ? Json(12) : record["selection"]["best"]["step"];
    CHECK(record["selection"]["step"] == expected);
    CHECK(read_tensor_file(setting.scratch.path() / "a" / "model.safetensors").metadata.at("step") == expected.dump());
  }
}

namespace {

// Four series to train on and three to test with, as files.
void put_series(const scratch::Folder& folder) {
  const std::string header =
      "@problemName Tiny\n@timeStamps false\n@missing false\n@univariate true\n@equalLength true\n@classLabel true a "
      "b\n"
      "@data\n";
  std::filesystem::create_directories(folder / "series/Tiny");
  scratch::put(folder / "series/Tiny/Tiny_TRAIN.ts", header + "1,2,3:a\n3,2,1:b\n1,2,4:a\n4,2,1:b\n");
  scratch::put(folder / "series/Tiny/Tiny_TEST.ts", header + "1,3,4:a\n4,3,1:b\n2,3,1:b\n");
}

RunPlan series_plan(const Json& more) {
  plan::PlanRequest request;
  request.task = "uea/Tiny";
  request.model = "linear";
  Json values{{"model.dim", 16},     {"model.head_dim", 8},  {"model.ff_dim", 16},
              {"training.batch", 2}, {"training.epochs", 2}, {"training.warmup_epochs", 0}};
  values.update(more);
  request.layers.push_back({"test", values});
  return plan::resolve_plan(request);
}

}  // namespace

TEST_CASE("a record says whether its weights were selected on test") {
  Setting setting;
  put_series(setting.scratch);
  for (const auto& [dev, split] : {std::pair("test", "test"), std::pair("holdout", "dev")}) {
    RunOptions options = setting.options(dev);
    options.data.folder = setting.scratch / "series";
    const RunRecord record = train(series_plan({{"data.dev", dev}}), options, setting.silent);
    REQUIRE(record.selection.has_value());
    CHECK(record.selection->split == split);
    if (record.selection->split == "test") CHECK(record.selection->best->value("accuracy") == record.score());
  }
}

TEST_CASE("where dev is the test split, what is selected is not evaluated again; stopped and gone on with, it is") {
  struct Watcher : Observer {
    int64_t dev = 0, test = 0;  // batches
    void on_evaluating(const std::string& what, int64_t, int64_t) override { ++(what == "dev" ? dev : test); }
  };
  Setting setting;
  put_series(setting.scratch);
  const auto run = [&](const char* name, const Json& more, int64_t stop_after, Watcher& watcher) {
    Json values{{"data.dev", "test"},
                {"training.epochs", 0},
                {"training.eval_epochs", 0},
                {"training.steps", 6},
                {"training.eval_every", 2}};
    values.update(more);
    RunOptions options = setting.options(name);
    options.data.folder = setting.scratch / "series";
    options.stop_after = stop_after;
    return train(series_plan(values), options, watcher);
  };
  // At such a rate the first evaluation stays the best.
  for (const Json& rule : {Json{{"training.selection", "last"}},
                           Json{{"training.selection", "best_dev"}, {"training.learning_rate", 1e-12}}}) {
    CAPTURE(rule);
    const bool last = rule["training.selection"] == "last";
    const char* const whole_name = last ? "last" : "best";
    Watcher whole;
    const RunRecord record = run(whole_name, rule, 0, whole);
    CHECK(whole.dev == 3 * 2);
    CHECK(whole.test == 0);
    CHECK(record.selection->step == (last ? 6 : 2));
    REQUIRE(record.test.has_value());
    CHECK(record.test->examples == 3);
    CHECK(record.headline("test")->value == record.dev->at(last ? 2 : 0).value("accuracy"));
    const std::string parts_name = std::string(whole_name) + "-parts";
    Watcher before, after;
    static_cast<void>(run(parts_name.c_str(), rule, 3, before));
    const RunRecord parts = run(parts_name.c_str(), rule, 0, after);
    CHECK(after.test == (last ? 0 : 2));  // the best evaluation was another process's
    CHECK(parts.test == record.test);
    CHECK(parts.headline("test")->chance == record.headline("test")->chance);
    for (const char* file : {"predictions.csv", "model.safetensors"})
      CHECK(read_file(setting.scratch / whole_name / file) == read_file(setting.scratch / parts_name / file));
  }
  // Another part of the same examples is another evaluation, and so is a part of it that is held out.
  for (const Json& other : {Json{{"data.limit", "dev=2"}}, Json{{"data.dev", "holdout"}}}) {
    CAPTURE(other);
    Watcher watcher;
    const RunRecord record = run(other.contains("data.dev") ? "holdout" : "limited", other, 0, watcher);
    CHECK(watcher.test == 2);
    CHECK(record.test->examples == 3);
  }
}

TEST_CASE("epochs count passes, partial batches included") {
  Setting setting;
  const Json record = setting.run(plan_with({{"training.epochs", 2}}), setting.options("a"));
  CHECK(record["steps"]["planned"] == 2 * 6);  // 44 examples are five batches of 8 and one of 4
  CHECK(record["status"] == "completed");
}

TEST_CASE("patience ends a run whose dev accuracy stands still") {
  Setting setting;
  const Json record = setting.run(plan_with({{"training.steps", 400},
                                             {"training.eval_every", 2},
                                             {"training.patience", 2},
                                             {"training.learning_rate", 1e-12}}),
                                  setting.options("a"));
  CHECK(record["steps"]["done"] == 2 + 2 * 2);
  CHECK(record["status"] == "completed");
  CHECK(record["selection"]["best"]["step"] == 2);  // the first of equals
}

TEST_CASE("a run that goes on with other kernels, or in another order of sums, says both") {
  Setting setting;
  RunOptions options = setting.options("a");
  options.kernels = "reference", options.deterministic = false, options.stop_after = 5;
  CHECK(setting.run(plan_with(), options)["kernels"] == "reference");
  options.kernels = "auto", options.deterministic = true, options.stop_after = 0;
  const Json record = setting.run(plan_with(), options);
  CHECK(record["kernels"] == "reference, then auto");
  CHECK(record["deterministic"] == false);
  kernels::set_policy(kernels::Policy::kAuto);
}

TEST_CASE("a record names the kernels that ran, whatever was asked for") {
  Setting setting;
  RunOptions options = setting.options("a");
  options.kernels = "auto";
  const auto fused = train(plan_with(), options, setting.silent).kernels_run;
  options = setting.options("b");
  options.kernels = "reference";
  const auto plain = train(plan_with(), options, setting.silent).kernels_run;
  REQUIRE((fused.contains("feature_attention") && plain.contains("feature_attention")));
  CHECK((fused.at("feature_attention") == "fused-cpu" && plain.at("feature_attention") == "reference"));
  kernels::set_policy(kernels::Policy::kAuto);
  const auto bf16 =
      train(plan_with({{"training.precision", "bf16"}}), setting.options("c"), setting.silent).kernels_run;
  for (const auto& [name, ran] : bf16) {
    if (name == "products") continue;  // a library's name
    INFO(name);
    CHECK(ran == (name == "adamw" || name == "dropout" ? "fused-cpu" : "fused-cpu-bf16"));
  }
}

TEST_CASE("a finished run is not run again") {
  Setting setting;
  const Json first = setting.run(plan_with(), setting.options("a")),
             second = setting.run(plan_with(), setting.options("a"));
  CHECK(first == second);
}

TEST_CASE("a run goes on under a program that has one more option") {
  Setting setting;
  RunPlan plan = plan_with();
  RunOptions options = setting.options("a");
  options.stop_after = 5;
  static_cast<void>(setting.run(plan, options));
  const std::string hash = plan.hash();
  // As schemas make it of `.added(7)`.
  plan.options.values["training.later"] = 7;
  plan.options.origins["training.later"] = {};
  plan.options.neutral["training.later"] = plan.options.before["training.later"] = 7;
  CHECK(plan.hash() == hash);
  CHECK_NOTHROW(RunDirectory(options.out, plan, Resume::kMust, [](const std::string&) {}));
  plan.options.values["training.later"] = 8;
  CHECK_THROWS_WITH(RunDirectory(options.out, plan, Resume::kMust, [](const std::string&) {}),
                    Catch::Contains("training.later: (absent) -> 8"));
}

TEST_CASE("a run directory of another plan is refused with the difference") {
  Setting setting;
  static_cast<void>(setting.run(plan_with(), setting.options("a")));
  CHECK_THROWS_WITH(setting.run(plan_with({{"model.ff_dim", 24}}), setting.options("a")),
                    Catch::Contains("model.ff_dim: 16 -> 24"));
}

TEST_CASE("a run is not gone on with on other data") {
  Setting setting;
  RunOptions options = setting.options("a");
  options.stop_after = 5;
  static_cast<void>(setting.run(plan_with(), options));
  // The same plan, with files in place of the generator.
  const Path sample = setting.scratch.path() / "files";
  std::filesystem::create_directories(sample);
  for (const char* split : {"train", "val", "test"}) {
    std::ofstream file(sample / (std::string("basic_") + split + ".tsv"));
    file << "Source\tTarget\n( ( ( [MAX 4 ) " << split[1] % 7 << " ) ] )\t" << std::max(4, split[1] % 7) << "\n";
  }
  options.data.folder = sample;
  options.stop_after = 0;
  CHECK_THROWS_AS(setting.run(plan_with(), options), DataError);
}

TEST_CASE("a damaged checkpoint falls back to the one before it, and loses nothing else") {
  Setting setting;
  const RunPlan plan = plan_with();
  static_cast<void>(setting.run(plan, setting.options("whole")));
  RunOptions options = setting.options("a");
  options.stop_after = 10;
  static_cast<void>(setting.run(plan, options));
  const Path newest = options.out / "checkpoints" / "step-00000010.safetensors";
  REQUIRE(std::filesystem::exists(newest));
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 5);
  Listener listener;
  options.stop_after = 0;
  const Json record = to_json(train(plan, options, listener));
  CHECK(listener.heard.find("step-00000010.safetensors") != std::string::npos);
  CHECK(listener.heard.find("resumed at step 8") != std::string::npos);
  CHECK(record["status"] == "completed");
  CHECK(setting.content_hash("a") == setting.content_hash("whole"));
}

TEST_CASE("a disk that is full at any write of a checkpoint is one error, and the run goes on afterwards") {
  Setting setting;
  const RunPlan plan = plan_with();
  static_cast<void>(setting.run(plan, setting.options("whole")));
  RunOptions options = setting.options("a");
  int64_t refused = 0;
  for (int64_t k = 4; k < 60; k += 7) {
    int64_t seen = 0;
    xformer::testing::file_fault = [&](std::string_view, int64_t) { return ++seen >= k ? ENOSPC : 0; };
    try {
      const Json record = setting.run(plan, options);
      if (record["status"] == "completed") break;
    } catch (const ResourceError& error) {
      CHECK(std::string(error.what()).find("No space left") != std::string::npos);
      ++refused;
    }
    xformer::testing::file_fault = nullptr;
  }
  xformer::testing::file_fault = nullptr;
  CHECK(refused > 0);
  CHECK(setting.run(plan, options)["status"] == "completed");
  CHECK(setting.content_hash("a") == setting.content_hash("whole"));
}

TEST_CASE("a run that diverges says so and keeps its checkpoint") {
  Setting setting;
  RunOptions options = setting.options("a");
  const RunPlan plan = plan_with({{"training.learning_rate", 1e30},
                                  {"training.schedule", "constant"},
                                  {"training.max_skips", 1},
                                  {"training.steps", 60},
                                  {"training.warmup", 0},
                                  {"training.log_every", 1},
                                  {"training.eval_every", 1}});
  CHECK_THROWS_AS(setting.run(plan, options), Diverged);
  CHECK(read_json_file(options.out / "record.json")["status"] == "diverged");
  CHECK(newest_checkpoint(options.out, [](const std::string&) {}).has_value());
}

}  // namespace xformer::training
