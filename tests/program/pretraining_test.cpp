// Self-pretraining in an experiment file: two stages, killed on both sides of their border, end as they would have; the
// records of both say what they were.
#include "program.h"

namespace xformer::program_test {
namespace {

const char* const kStages = R"({
  "title": "Small", "tasks": ["listops"], "models": ["linear"], "steps": 30,
  "set": {"model.dim": 16, "model.head_dim": 8, "model.ff_dim": 16, "model.classifier_dim": 16, "data.min_length": 10,
          "data.max_length": 60, "data.train_examples": 256, "data.dev_examples": 32, "data.test_examples": 32,
          "training.batch": 8, "training.eval_every": 2, "training.log_every": 2, "model.dropout": 0.1},
  "stages": [{"name": "masked", "set": {"data.objective": "masked", "data.masked_share": 0.1}},
             {"name": "task", "steps": 24}]})";

struct Stages {
  Path masked, task;  // run directories; empty while they are not there
};
Stages stages_in(const Path& out) {
  Stages stages;
  std::error_code error;  // files come and go
  std::filesystem::recursive_directory_iterator entry(out, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() != "plan.json") continue;
    const Json plan = Json::parse(scratch::get(entry->path()), nullptr, /*allow_exceptions=*/false);
    if (plan.is_object())
      (plan.value("data.objective", "") == "masked" ? stages.masked : stages.task) = entry->path().parent_path();
  }
  return stages;
}

size_t checkpoints(const Path& run) {
  return run.empty() || !std::filesystem::exists(run / "checkpoints") ? 0 : checkpoints_of(run).size();
}
bool exists(const Path& folder, const char* file) { return !folder.empty() && std::filesystem::exists(folder / file); }

}  // namespace

TEST_CASE("two stages killed before, at and behind their border end in the bits of those that were not",
          "[pretraining]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/stages.json", kStages);
  const auto command = [](const std::string& name) {
    return Words{program_path()} +
           words("sweep small/stages.json --threads 1 --out " + name + " --record-to " + name + "-records");
  };
  REQUIRE(place.command(command("reference")).code == 0);
  const Stages reference = stages_in(place / "reference");

  // When the whole process group of a sweep is killed: in the first stage, when its weights are there, in the second.
  const std::vector<std::function<bool(const Stages&)>> moments{
      [](const Stages& now) { return checkpoints(now.masked) > 0; },
      [](const Stages& now) { return exists(now.masked, "model.safetensors"); },
      [](const Stages& now) { return exists(now.masked, "record.json") && now.task.empty(); },
      [](const Stages& now) { return checkpoints(now.task) > 1; }};
  int killed = 0;
  for (size_t i = 0; i < moments.size(); ++i) {
    CAPTURE(i);
    const std::string name = fmt::format("killed{}", i);
    {
      Process sweep(command(name), place.path(), place.environment());
      while (!sweep.ended() && !moments[i](stages_in(place / name)))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::istringstream children(scratch::get(fmt::format("/proc/{0}/task/{0}/children", sweep.id())));
      sweep.send(SIGKILL);
      for (pid_t cell = 0; children >> cell;) ::kill(cell, SIGKILL);
      killed += sweep.wait() == -SIGKILL ? 1 : 0;
    }
    const Outcome rest = place.command(command(name));
    INFO(rest.err);
    REQUIRE(rest.code == 0);
    const Stages ended = stages_in(place / name);
    check_same_end(ended.masked, reference.masked);
    check_same_end(ended.task, reference.task);
  }
  CHECK(killed >= 3);

  const Json first = json_file(reference.masked / "record.json"), second = json_file(reference.task / "record.json");
  CHECK(first["plan"]["data.objective"] == "masked");
  CHECK(first["metrics"][0]["name"] == "bits_per_symbol");
  CHECK(second["metrics"][0]["name"] == "accuracy");
  const Json& from = second["init_from"];
  CHECK(from["run"]["data.objective"] == "masked");
  CHECK(from["run"]["task"] == "listops");
  CHECK(from["fresh"] == 4);
  CHECK(from["unused_tensors"] == Json{"mask", "symbols_out.bias", "symbols_out.weight"});
  // The table has the task alone.
  const Outcome report = place.run(words("report small/stages.json --records reference-records"));
  CHECK(report.code == 0);
  CHECK(contains(report.out, "linear"));
  CHECK_FALSE(contains(report.out, "bits/symbol"));
  CHECK_FALSE(contains(report.out, "without record"));
  CHECK_FALSE(contains(report.err, "are of no run"));  // the first stage is the experiment's too
  // Nor is its run one of the same task from scratch, which differs in nothing else.
  scratch::put(place / "small/scratch.json",
               R"({"extends": "stages.json", "title": "From scratch", "steps": 24, "stages": []})");
  const Outcome fresh = place.run(words("report small/scratch.json --records reference-records"));
  INFO(fresh.err);
  CHECK(fresh.code == 0);
  CHECK(contains(fresh.out, "1 without record"));
}

TEST_CASE("an objective is refused, shown and exported with words that help", "[pretraining]") {
  const Place place;
  check_case(place, "train --task retrieval --model linear data.objective=masked", 2, {"pairs of sequences"});
  check_case(place, "train --task listops --model linformer data.objective=causal model.causal=true", 2,
             {"linformer has no causal form"});
  check_case(place, "train --task listops --model linear data.objective=causal", 2, {"model.causal=true"});
  check_case(place,
             "data show listops --set data.objective=masked data.train_examples=50 data.dev_examples=2"
             " data.test_examples=2 data.min_length=5 data.max_length=30",
             0, {"[MASK]", "to be found:"});
  REQUIRE(place.run(tiny("linear", "--steps 2 data.objective=masked --out first")).code == 0);
  check_case(place, "export-pytorch first first.py", 2, {"data.objective=masked", "take a run of the task itself"});
  check_case(place, "eval first --split test", 0, {"bits_per_symbol"});
}

}  // namespace xformer::program_test
