// How attempts are judged, and what a search chooses.
#include "sweep/cell_record.h"

#include <csignal>

#include "experiment_file.h"

namespace xformer::sweep_test {
namespace {

using Catch::Matchers::Contains;
using sweep::Cell;
using sweep::CellHistory;
using sweep::Ending;
using sweep::Verdict;

// One attempt at a listops run with a batch of 8.
struct Attempt {
  Folder folder;
  Cell cell = ExperimentFile(R"({"tasks": ["listops"], "models": ["none"], "set": {"training.batch": 8}})").cells()[0];
  CellHistory history;
  int64_t retries = 1;

  Attempt& record(const std::string& json) {
    put(folder / "record.json", json);
    return *this;
  }
  Attempt& says(const std::string& text) {
    put(folder / "output.log", text);
    return *this;
  }
  [[nodiscard]] Verdict ends(const Ending& ending, bool system_out_of_memory = false) const {
    return sweep::judge(cell, ending, system_out_of_memory, folder.path(), folder / "output.log", history, retries);
  }
};

}  // namespace

TEST_CASE("a cell is completed when its record says so") {
  CHECK(Attempt().record(R"({"status": "completed"})").ends({0, 0}).status == "completed");
  // A program that says nothing of itself has not completed, whatever its exit code.
  CHECK(Attempt().ends({0, 0}).status == "failed");
  CHECK(Attempt().record(R"({"status": "completed"})").ends({70, 0}).status == "failed");
}

TEST_CASE("a failure is tried again as often as the file says, a wrong value and missing data never") {
  Attempt attempt;
  attempt.says("epoch 1\nxformer: cannot read the file\nsee `xformer train --help`\n");
  attempt.history.failures = 0;
  CHECK_FALSE(attempt.ends({70, 0}).give_up);
  CHECK(attempt.ends({70, 0}).message == "cannot read the file");
  attempt.history.failures = 1;
  CHECK(attempt.ends({70, 0}).give_up);
  CHECK_FALSE(attempt.ends({70, 0}).stop_sweep);
  attempt.retries = 2;
  CHECK_FALSE(attempt.ends({70, 0}).give_up);
  attempt.history.failures = 0;
  CHECK(attempt.ends({2, 0}).give_up);
  CHECK(attempt.ends({3, 0}).give_up);
  // A record that an earlier attempt left when it was stopped says nothing of this one.
  attempt.record(R"({"status": "interrupted", "message": "the same command goes on"})");
  CHECK(attempt.ends({3, 0}).message == "cannot read the file");
  const Verdict crash = attempt.ends({0, SIGSEGV});
  CHECK(crash.status == "failed");
  CHECK_FALSE(crash.give_up);
  CHECK_THAT(crash.message, Contains("crashed by signal 11"));
}

TEST_CASE("what the machine refuses a cell ends the sweep in its place, once it was tried often enough") {
  Attempt attempt;
  attempt.says("xformer: cannot write log.jsonl: No space left on device\n");
  attempt.history.failures = 0;
  CHECK_FALSE(attempt.ends({4, 0}).stop_sweep);
  attempt.history.failures = 1;
  CHECK(attempt.ends({4, 0}).stop_sweep);
  CHECK_FALSE(attempt.ends({4, 0}).give_up);
  attempt.says("xformer: out of memory\n");  // before there was a run to say it of
  CHECK_FALSE(attempt.ends({4, 0}).stop_sweep);
  CHECK(attempt.ends({4, 0}).give_up);
}

TEST_CASE("what diverged would diverge again") {
  Attempt attempt;
  attempt.retries = 5;
  const Verdict verdict = attempt.record(R"({"status": "diverged", "message": "loss is nan"})").ends({5, 0});
  CHECK(verdict.status == "diverged");
  CHECK(verdict.message == "loss is nan");
  CHECK(verdict.give_up);
}

TEST_CASE("running out of memory halves the micro-batch down to one example") {
  Attempt attempt;
  attempt.record(R"({"status": "out-of-memory", "message": "out of memory: asked for 9 GB"})");
  std::vector<int64_t> sizes;
  for (int round = 0; round < 3; ++round) {
    const Verdict verdict = attempt.ends({4, 0});
    CHECK(verdict.status == "out-of-memory");
    CHECK_FALSE(verdict.give_up);
    sizes.push_back(attempt.history.micro_batch = verdict.next_micro_batch);
  }
  CHECK(sizes == std::vector<int64_t>{4, 2, 1});
  CHECK(attempt.ends({4, 0}).give_up);
  // The system's own killing is told from anybody else's.
  attempt.history.micro_batch = 0;
  CHECK(attempt.ends({0, SIGKILL}, /*system_out_of_memory=*/true).next_micro_batch == 4);
  CHECK(attempt.ends({0, SIGKILL}).status == "killed");
  // Batch norm takes no parts of a batch.
  Attempt normed;
  normed.cell =
      ExperimentFile(R"({"tasks": ["listops"], "models": ["none"], "set": {"model.norm": "batch"}})").cells()[0];
  const Verdict lost = normed.record(R"({"status": "out-of-memory", "message": "asked for 9 GB"})").ends({4, 0});
  CHECK(lost.give_up);
  CHECK(lost.next_micro_batch == 0);
  CHECK(lost.message == "asked for 9 GB");
  // A full disk is no matter of the batch.
  CHECK(Attempt().record(R"({"status": "failed", "message": "disk full"})").ends({4, 0}).status == "failed");
}

TEST_CASE("what was killed from outside goes on, within reason") {
  Attempt attempt;
  attempt.retries = 0;
  for (const int signal : {SIGKILL, SIGTERM, SIGHUP}) {
    CHECK(attempt.ends({0, signal}).status == "killed");
    CHECK_FALSE(attempt.ends({0, signal}).give_up);
  }
  attempt.history.kills = sweep::kMostKills - 1;
  CHECK(attempt.ends({0, SIGKILL}).give_up);
  CHECK(attempt.ends({6, 0}).status == "interrupted");
}

TEST_CASE("a cell that never wrote a record gets one of its plan, its command and what is known of its end") {
  const Attempt attempt;
  const Json record = to_json(sweep::record_of_failure(attempt.cell, attempt.folder.path(), "failed", "no data"));
  CHECK(record["status"] == "failed");
  CHECK(record["message"] == "no data");
  CHECK(record["task"] == "listops");
  CHECK(record["plan"]["training.batch"] == 8);
  CHECK(record["command"] == "xformer train --task listops --model none --seed 0 --set training.batch=8");
  // Nobody knows on what it ran, or how far it came.
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"schema_version", "status", "message", "task", "model", "name", "family",
                                         "attention", "protocol", "seed", "plan_hash", "command", "plan"});
}

TEST_CASE("a search chooses the best mean on dev of what completed with every seed") {
  const ExperimentFile file(R"({"tasks": ["listops"], "models": ["none"], "search":
    {"over": {"training.batch": [2, 4, 8]}, "seeds": [0, 1]}})");
  const sweep::Experiment experiment = file.read();
  const std::vector<Cell> cells = sweep::expand(experiment);
  REQUIRE(cells.size() == 7);
  std::vector<const Cell*> trials;
  for (size_t i = 0; i < 6; ++i) trials.push_back(&cells[i]);
  const auto scored = [](const char* metric, double value, const char* split = "dev") {
    return std::optional(
        parse_run_record(Json{{"selection", {{"split", split}, {"best", {{metric, value}}}}}, {"accuracy", 0.99}}));
  };
  // The batch of 4 has the best mean; 8 has the best single score, but one of its trials failed.
  std::vector<std::optional<RunRecord>> records{scored("accuracy", 0.5), scored("accuracy", 0.6),
                                                scored("accuracy", 0.6), scored("accuracy", 0.7),
                                                scored("accuracy", 0.9), std::nullopt};
  const sweep::Chosen chosen = sweep::choose(*experiment.search, trials, records);
  CHECK(chosen.values == Json{{"training.batch", 4}});
  CHECK(chosen.search["trials"].size() == 6);
  CHECK(chosen.search["trials"][5]["status"] == "failed");
  CHECK(chosen.search["trials"][4]["dev"] == 0.9);
  records = {scored("rmse", 0.5), scored("rmse", 0.6), scored("rmse", 0.6),
             scored("rmse", 0.7), scored("rmse", 0.9), scored("rmse", 0.1)};
  CHECK(sweep::choose(*experiment.search, trials, records).values == Json{{"training.batch", 8}});
  records[0] = scored("accuracy", 0.5, "test");
  CHECK_THROWS_WITH(sweep::choose(*experiment.search, trials, records), Contains("selects on the test split"));
  CHECK_THROWS_WITH(sweep::choose(*experiment.search, trials, std::vector<std::optional<RunRecord>>(6)),
                    Contains("none of its trials completed"));
}

}  // namespace xformer::sweep_test
