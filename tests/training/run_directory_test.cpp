// What a run directory holds, whom it gives way to, and what the record and the log of a run say.
#include "training/run_directory.h"

#include <fstream>

#include "run_setting.h"
#include "training/weights.h"

namespace xformer::training {

TEST_CASE("a run without its data leaves nothing behind, and so stands in nobody's way") {
  Setting setting;
  plan::PlanRequest request;
  request.task = "uea/Nowhere";
  request.model = "linear";
  const RunOptions options = setting.options("a");
  CHECK_THROWS_AS(train(plan::resolve_plan(request), options, setting.silent), DataError);
  CHECK_FALSE(std::filesystem::exists(options.out));
}

TEST_CASE("a split without examples is told before anything is made of a run, with what there is") {
  Setting setting;
  plan::PlanRequest request;
  request.task = "longdoc/few";
  request.model = "linear";
  RunOptions options = setting.options("a");
  options.data.folder = setting.scratch / "texts";
  const auto refusal = [&](const std::string& file) {
    for (const char* name : {"one", "two"}) {
      std::filesystem::create_directories(options.data.folder / name);
      scratch::put(options.data.folder / name / file, "text");
    }
    return scratch::message_of<DataError>([&] { train(plan::resolve_plan(request), options, setting.silent); });
  };
  CHECK_THAT(refusal("0"), Catch::Contains("found none of train and of dev (train 0, dev 0, test 2): add some, or give "
                                           "another data.dev_share or data.test_share"));
  CHECK_THAT(refusal("1"),
             Catch::Contains("texts: expected examples of every split, found none of dev (train 2, dev 0"));
  CHECK_FALSE(std::filesystem::exists(options.out));
}

TEST_CASE("a run that cannot begin takes the place of none") {
  Setting setting;
  RunOptions options = setting.options("a");
  static_cast<void>(setting.run(plan_with(), options));
  const std::string hash = setting.content_hash("a");
  options.resume = Resume::kOverwrite;
  const auto refused = [&](const RunPlan& plan, const char* why) {
    CHECK_THROWS_WITH(setting.run(plan, options), Catch::Contains(why));
    CHECK(standing_of(options.out, plan_with(), Resume::kAuto).kind == Standing::kFinished);
    CHECK(setting.content_hash("a") == hash);
    CHECK(std::filesystem::exists(options.out / "checkpoints" / "step-00000012.safetensors"));
  };
  refused(plan_with({{"training.freeze", "nothing"}}), "training.freeze");
  const RunPlan more =
      plan_with({{"training.init_sha256", read_weights(options.out, [](const std::string&) {}).sha256}});
  refused(more, "name their file with --init-from");
  for (const Path& own : {options.out, options.out / "", options.out / "model.safetensors",
                          options.out / "checkpoints" / "step-00000012.safetensors"}) {
    options.init_from = own;
    refused(more, "would be removed with the run there");
  }
  std::filesystem::create_symlink(options.out / "model.safetensors", setting.scratch / "link");
  options.init_from = setting.scratch / "link";
  refused(more, "would be removed with the run there");
  options.init_from = setting.scratch / "kept";
  std::filesystem::copy_file(options.out / "model.safetensors", options.init_from);
  CHECK(setting.run(more, options)["status"] == "completed");
  CHECK(standing_of(options.out, more, Resume::kAuto).kind == Standing::kFinished);
}

TEST_CASE("a folder that cannot be made is told before the data is made") {
  Setting setting;
  scratch::put(setting.scratch.path() / "file", "");
  const RunOptions options = setting.options("file/run");
  CHECK_THROWS_AS(train(plan_with(), options, setting.silent), UserError);
  CHECK_FALSE(std::filesystem::exists(options.data.cache));
}

TEST_CASE("a run that took no step gives way to another plan, one that did only to --overwrite") {
  Setting setting;
  RunOptions options = setting.options("a");
  static_cast<void>(setting.run(plan_with(), setting.options("b")));
  {
    const RunDirectory begun(options.out, plan_with(), Resume::kAuto, [](const std::string&) {});
  }
  const RunPlan other = plan_with({{"model.ff_dim", 24}});
  CHECK(standing_of(options.out, other, Resume::kAuto).kind == Standing::kReplaced);
  CHECK_THROWS_WITH(standing_of(options.out, other, Resume::kMust), Catch::Contains("a run of another plan"));
  options.stop_after = 5;
  CHECK(setting.run(other, options)["status"] == "stopped");
  CHECK(standing_of(options.out, other, Resume::kAuto).step == 5);
  CHECK(standing_of(options.out, other, Resume::kAuto).kind == Standing::kGoesOn);
  CHECK_THROWS_WITH(setting.run(plan_with(), options), Catch::Contains("--overwrite"));
  options.stop_after = 0;
  options.resume = Resume::kOverwrite;
  const Json record = setting.run(plan_with(), options);
  CHECK(record["status"] == "completed");
  CHECK(record["resumed_at"] == Json::array());  // nothing of the other run is left
  CHECK(setting.content_hash("a") == setting.content_hash("b"));
  CHECK(standing_of(options.out, plan_with(), Resume::kAuto).kind == Standing::kFinished);
}

TEST_CASE("files of no run that is known are neither gone on with nor written over, but by --overwrite") {
  Setting setting;
  const auto standing = [&](const RunOptions& options, Resume resume) {
    return standing_of(options.out, plan_with(), resume).kind;
  };
  for (const char* name : {"model.safetensors", "predictions.csv", "log.jsonl"}) {
    const RunOptions options = setting.options(std::string("of ") + name);
    std::filesystem::create_directories(options.out);
    scratch::put(options.out / name, "mine");
    CHECK_THROWS_WITH(standing(options, Resume::kAuto), Catch::Contains(name) && Catch::Contains("--overwrite"));
    CHECK(scratch::get(options.out / name) == "mine");
    CHECK(standing(options, Resume::kOverwrite) == Standing::kReplaced);
  }
  RunOptions options = setting.options("a");
  options.stop_after = 5;
  CHECK(setting.run(plan_with(), options)["status"] == "stopped");
  std::filesystem::remove(options.out / "plan.json");
  std::filesystem::remove(options.out / "log.jsonl");
  CHECK_THROWS_WITH(setting.run(plan_with({{"model.ff_dim", 24}}), options), Catch::Contains("checkpoints"));
  options.resume = Resume::kOverwrite, options.stop_after = 0;
  CHECK(setting.run(plan_with(), options)["resumed_at"] == Json::array());
  // What others leave in a folder before a run begins is none of its files.
  const RunOptions other = setting.options("b");
  std::filesystem::create_directories(other.out);
  scratch::put(other.out / "run.log", "");
  CHECK(standing(other, Resume::kAuto) == Standing::kNew);
}

TEST_CASE("a run that cannot be removed whole keeps its plan, so that nobody goes on with its checkpoints") {
  Setting setting;
  RunOptions options = setting.options("a");
  options.stop_after = 5;
  CHECK(setting.run(plan_with(), options)["status"] == "stopped");
  std::filesystem::create_directories(options.out / "checkpoints" / "step-00000001.safetensors" / "x");
  const RunPlan other = plan_with({{"training.learning_rate", 0.5}});
  CHECK_THROWS(RunDirectory(options.out, other, Resume::kOverwrite, [](const std::string&) {}));
  CHECK_THROWS_WITH(standing_of(options.out, other, Resume::kMust), Catch::Contains("a run of another plan"));
}

TEST_CASE("a record has no planned number that epochs took the place of, and no speed that nobody timed") {
  Setting setting;
  const Json epochs = setting.run(plan_with({{"training.epochs", 1}}), setting.options("a"));
  CHECK(epochs["steps"]["planned"] == 6);
  CHECK_FALSE(epochs["plan"].contains("training.steps"));
  CHECK_FALSE(epochs["origins"].contains("training.steps"));
  CHECK(epochs["plan"].contains("training.eval_every"));
  CHECK(epochs.contains("examples_per_s"));
  const Json short_run = setting.run(plan_with({{"training.steps", 4}}), setting.options("b"));
  CHECK(short_run["plan"]["training.steps"] == 4);
  CHECK_FALSE(short_run.contains("speed"));
  CHECK_FALSE(short_run.contains("examples_per_s"));
}

TEST_CASE("a run of part of the data says that it is not comparable") {
  Setting setting;
  const Json record = setting.run(plan_with({{"data.limit", "train=20,test=5"}}), setting.options("a"));
  CHECK(record["data"]["sizes"] == Json({{"train", 20}, {"dev", 12}, {"test", 5}}));
  CHECK(record["test"]["examples"] == 5);
  CHECK_THAT(record["not_comparable"].get<std::string>(), Catch::Contains("data.limit=train=20,test=5"));
  CHECK_FALSE(setting.run(plan_with(), setting.options("b")).contains("not_comparable"));
  for (const char* all : {"train=100%,test=1.0", "train=100000"})
    CHECK_FALSE(setting.run(plan_with({{"data.limit", all}}), setting.options(all)).contains("not_comparable"));
}

TEST_CASE("every line of the log has its time") {
  Setting setting;
  static_cast<void>(setting.run(plan_with(), setting.options("a")));
  std::ifstream log(setting.scratch.path() / "a" / "log.jsonl");
  int lines = 0;
  for (std::string line; std::getline(log, line); ++lines)
    CHECK(Json::parse(line).value("time", "").size() == std::string("2026-11-21T07:16:30Z").size());
  CHECK(lines > 5);
}

TEST_CASE("--resume must begins nothing anew where no checkpoint is whole") {
  Setting setting;
  RunOptions options = setting.options("a");
  options.stop_after = 3;
  static_cast<void>(setting.run(plan_with(), options));
  const Path only = options.out / "checkpoints" / "step-00000003.safetensors";
  REQUIRE(std::filesystem::exists(only));
  std::filesystem::resize_file(only, std::filesystem::file_size(only) - 5);
  Listener listener;
  options.stop_after = 0;
  options.resume = Resume::kMust;
  CHECK_THROWS_WITH(train(plan_with(), options, listener),
                    Catch::Contains("--resume must: " + options.out.string() + " holds no whole checkpoint"));
  CHECK(listener.heard.find("there is none before it") != std::string::npos);
  options.resume = Resume::kAuto;
  CHECK(setting.run(plan_with(), options)["status"] == "completed");
}

}  // namespace xformer::training
