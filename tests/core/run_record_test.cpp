// Records: both ways through JSON, and those of before.
#include "core/run_record.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "scratch.h"

namespace xformer {

namespace {

RunRecord whole() {
  RunRecord record;
  record.status = "completed";
  record.task = "t";
  record.model = "m";
  record.family = "f";
  record.attention = "a";
  record.protocol = "p";
  record.seed = 3;
  record.plan_hash = "0123456789abcdef";
  record.experiment = "e";
  record.metrics = {{accuracy_metric(), "dev", 0.5},
                    {accuracy_metric(), "test", 0.25, 0.1},
                    {{"nats", "nats per byte", "nats/byte", false, 3}, "test", 1.5}};
  record.parameters = 10;
  record.flops = RunRecord::Flops{2, 64};
  record.speed = RunRecord::Speed{{1, 2, 3}, {4, 5, 6}, 7, 0.5, 0.25};
  record.train_seconds = 8;
  record.evaluation_seconds = 9;
  record.peak_device_bytes = 10;
  record.reserved_device_bytes = 11;
  record.peak_process_bytes = 12;
  record.backend = "b";
  record.kernels = "auto";
  record.kernels_run = {{"linear", "fused-cpu"}};
  record.cuda_graph = RunRecord::CudaGraph{"auto", 2};
  record.energy = RunRecord::Energy{5, "NVML"};
  record.deterministic = true;
  record.init_from = {{"file", "w"}};
  record.steps = RunRecord::Steps{12, 12};
  record.selection = RunRecord::Selection{"best_dev", "dev", 4, EvaluationPoint{4, {{"accuracy", 0.5}}, 1, 8}};
  record.dev = {{4, {{"accuracy", 0.5}}, 1, 8}};
  record.test = EvaluationPoint{{}, {{"accuracy", 0.25}, {"nats", 1.5}}, 2, 16};
  record.skipped_steps = 0;
  record.resumed_at = std::vector<int64_t>{};
  record.data = RunRecord::Data{"abc", "files", {{"train", 4}}, Json::array(), {{"dev", "holdout"}}};
  record.seeds = {{"run", 3}};
  record.search = {{"rule", "best on dev"}};
  record.software = {{"commit", "c"}, {"dirty", false}};
  record.hardware = {{"processor", "x"}};
  record.command = "xformer train";
  record.date = "2026-11-22T00:00:00Z";
  record.plan = {{"task", "t"}, {"training.batch", 8}};
  record.origins = {{"training.batch", "--batch"}};
  return record;
}

}  // namespace

TEST_CASE("a record read from its JSON is written as that JSON again, and no member is lost") {
  const Json json = to_json(whole());
  const RunRecord back = parse_run_record(json);
  CHECK(to_json(back) == json);
  CHECK(json["schema_version"] == kRecordSchema);
  // A member without a key would be lost: every one set above is there.
  for (const char* key : {"status",         "task",
                          "model",          "family",
                          "attention",      "protocol",
                          "seed",           "plan_hash",
                          "experiment",     "metrics",
                          "parameters",     "flops",
                          "speed",          "dev",
                          "train_seconds",  "test",
                          "backend",        "evaluation_seconds",
                          "kernels",        "cuda_graph",
                          "kernels_run",    "energy",
                          "deterministic",  "peak_device_bytes",
                          "init_from",      "steps",
                          "selection",      "resumed_at",
                          "skipped_steps",  "reserved_device_bytes",
                          "data",           "seeds",
                          "search",         "software",
                          "hardware",       "peak_process_bytes",
                          "command",        "date",
                          "plan",           "origins",
                          "accuracy",       "chance",
                          "examples_per_s", "flops_per_example"}) {
    INFO(key);
    CHECK(json.contains(key));
  }
  CHECK(json["dev"][0] == Json{{"step", 4}, {"accuracy", 0.5}, {"loss", 1.0}, {"examples", 8}});
  CHECK(json["selection"]["best"] == json["dev"][0]);
  CHECK(back.headline("test")->spec == accuracy_metric());
  CHECK(back.metrics[2].spec == whole().metrics[2].spec);
  CHECK((back.score() == 0.25 && back.headline("test")->chance == 0.1 && back.headline("dev")->value == 0.5));
  CHECK((back.commit() == "c" && !back.dirty()));
}

TEST_CASE("what is not known is not in a record") {
  RunRecord record;
  record.status = "failed";
  const Json json = to_json(record);
  CHECK(json == Json{{"schema_version", kRecordSchema}, {"status", "failed"}, {"seed", 0}, {"plan", Json::object()}});
  CHECK_FALSE(parse_run_record(json).score());
  CHECK(parse_run_record(json).dirty());  // nobody says that it is not
}

TEST_CASE("a speed of 0, as older programs wrote of what nobody timed, is not known") {
  const Json quantiles{{"p10", 0.0}, {"median", 0.0}, {"p90", 0.0}};
  const Json speed{{"examples_per_s", quantiles}, {"step_ms", quantiles}, {"timed_steps", 0}};
  CHECK_FALSE(parse_run_record({{"schema_version", 2}, {"examples_per_s", 0.0}, {"speed", speed}}).speed);
}

TEST_CASE("the keys of records before schema 2 are its metrics") {
  const Json accuracy{
      {"schema_version", 1},
      {"status", "completed"},
      {"task", "t"},
      {"model", "m"},
      {"accuracy", 0.75},
      {"chance", 0.5},
      {"examples_per_s", 7.0},
      {"test", {{"accuracy", 0.75}, {"loss", 1.0}, {"examples", 4}, {"accuracy_stderr", 0.2}, {"top5_accuracy", 0.9}}},
      {"selection", {{"split", "dev"}, {"best", {{"step", 2}, {"accuracy", 0.7}}}}}};
  const RunRecord record = parse_run_record(accuracy);
  CHECK((record.schema == 1 && record.score() == 0.75 && record.headline("test")->chance == 0.5));
  CHECK((record.headline("dev")->value == 0.7 && record.test->examples == 4));
  CHECK(record.test->values.size() == 2);  // a standard error is no metric
  CHECK(record.metrics.back().spec == top5_metric());
  CHECK(record.speed->examples_per_s.median == 7);
  const RunRecord error = parse_run_record(
      {{"schema_version", 1}, {"accuracy", nullptr}, {"rmse", 0.5}, {"chance", 1.5}, {"test", {{"rmse", 0.5}}}});
  CHECK(error.metrics.size() == 1);
  CHECK((error.headline("test")->spec == rmse_metric() && error.score() == 0.5 && error.metrics[0].chance == 1.5));
  const RunRecord failed = parse_run_record({{"schema_version", 1}, {"status", "diverged"}, {"accuracy", nullptr}});
  CHECK((failed.metrics.empty() && failed.status == "diverged"));
}

TEST_CASE("what is not finite is null in JSON, and read back as no number under its name") {
  const EvaluationPoint written_point{4, {{"auc", std::numeric_limits<double>::infinity()}, {"f1", 0.5}}, 1, 8};
  const Json json = Json::parse(written(written_point).dump());
  CHECK(json == Json{{"step", 4}, {"auc", nullptr}, {"f1", 0.5}, {"loss", 1.0}, {"examples", 8}});
  EvaluationPoint back;
  REQUIRE(take(json, back));
  REQUIRE(back.values.size() == 2);
  CHECK((back.values[0].first == "auc" && std::isnan(back.values[0].second) && back.value("f1") == 0.5));
  CHECK((back.step == 4 && back.examples == 8));
  CHECK(Json::parse(written(back).dump()) == json);
}

TEST_CASE("a file that is no JSON, or none, is a record of nothing") {
  const scratch::Folder folder;
  scratch::put(folder / "a.json", "{\"status\": ");
  for (const char* name : {"a.json", "none.json"}) {
    const RunRecord record = read_run_record(folder / name);
    CHECK((record.path.empty() && record.status.empty() && record.schema == 0));
  }
  scratch::put(folder / "b.json", R"({"status": 4, "seed": "x", "dev": 3, "steps": [1]})");
  const RunRecord odd = read_run_record(folder / "b.json");
  CHECK((odd.status.empty() && odd.seed == 0 && !odd.dev && !odd.steps));
}

}  // namespace xformer
