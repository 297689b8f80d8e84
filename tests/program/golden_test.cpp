// Short trainings whose numbers are pinned: a change that claims to change nothing changes none of them. Initial
// values, order of the data, dropout, the step, the optimiser, evaluation and selection all show in losses and gradient
// norms; hashes of plan and data are equal in every digit. Numbers may differ in the fifth digit between processors,
// whose products are summed in another order.
#include "program.h"

namespace xformer::program_test {
namespace {

struct Golden {
  const char* name;
  Words command;
  const char* pinned;  // plan, data, [step, loss, gradient norm (0 in evaluations)] of every line, result
};

const char* const kListops =
    R"({"plan": "071ebe677859f6c6", "data": "913da0fc6b1bf372", "lines": [[3, 2.342999, 0.334395],
         [6, 2.310983, 0.551538],
         [9, 2.335005, 0.574143],
         [10, 2.347171, 0.0],
         [12, 2.316319, 0.409744],
         [15, 2.279047, 0.452766],
         [18, 2.339257, 0.352672],
         [18, 2.342584, 0.0],
         [18, 2.354934, 0.0]], "test": 2.354934})";
const char* const kPairs =
    R"({"plan": "6efef4abd8429db6", "data": "478a8b5feb7ca6a8", "lines": [[3, 0.7074602, 1.01227],
         [6, 0.70448, 0.426921],
         [6, 0.7073974, 0.0],
         [9, 0.7099418, 0.629389],
         [12, 0.6961589, 0.511229],
         [12, 0.6950077, 0.0],
         [12, 0.6758275, 0.0]], "test": 0.6758275})";
const char* const kNumbers =
    R"({"plan": "ee10f9dbe054b969", "data": "a920e11fe38ba931", "lines": [[3, 2.365375, 132.837],
         [6, 2.019105, 126.701],
         [9, 0.6498932, 71.2055],
         [11, 4.226306, 0.0],
         [12, 2.8693, 186.585],
         [12, 4.039487, 0.0],
         [12, 3.716705, 0.0]], "test": 3.716705})";

std::vector<Golden> all() {
  return {
      {"mrs-linformer on ListOps, in length buckets and micro-batches",
       tiny("mrs-linformer",
            "--steps 18 --micro-batch 3 --set training.buckets=2 --set training.learning_rate=0.01 "
            "--set attention.projected_len=8 --set training.clip_norm=0.5"),
       kListops},
      {"a dual encoder of performer on pairs of documents",
       words("train --task aan-synth --model performer --length 96 --set model.dim=16 --set model.head_dim=8 "
             "--set model.ff_dim=16 --set model.classifier_dim=16 --set attention.features=16 "
             "--set data.train_examples=64 --set data.dev_examples=16 --set data.test_examples=16 "
             "--set training.learning_rate=0.01 --set training.log_every=3 --batch 6 --steps 12 --eval-every 6 "
             "--seed 3 --threads 1"),
       kPairs},
      {"nystromformer on sums of numbers, rectified",
       words("train --task adding --model nystromformer --length 96 --set attention.landmarks=8 "
             "--set data.train_examples=64 --set data.dev_examples=16 --set data.test_examples=16 "
             "--set training.optimizer=radam --set training.beta2=0.9 --set training.learning_rate=0.001 --set "
             "model.dropout=0.1 --set training.log_every=3 --batch 6 --steps 12 --eval-every 6 --seed 3 --threads 1"),
       kNumbers}};
}

Json facts_of(const Path& run) {
  const Json record = json_file(run / "record.json");
  Json lines = Json::array();
  std::istringstream log(scratch::get(run / "log.jsonl"));
  for (std::string line; std::getline(log, line);)
    if (const Json entry = Json::parse(line); entry.contains("loss"))
      lines.push_back({entry["step"], entry["loss"], entry.value("gradient_norm", 0.0)});
  return {{"plan", record["plan_hash"]},
          {"data", record["data"]["sha256"].get<std::string>().substr(0, 16)},
          {"lines", lines},
          {"test", record["test"]["loss"]}};
}

bool near(const Json& left, const Json& right) {
  return std::abs(left.get<double>() - right.get<double>()) <= 2e-4 * std::max(std::abs(right.get<double>()), 0.01);
}

TEST_CASE("golden runs keep their numbers", "[cli]") {
  for (const Golden& golden : all()) {
    const Place place;
    INFO(golden.name);
    const Outcome outcome = place.run(golden.command + Words{"--out", "run"});
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json got = facts_of(place / "run"), meant = Json::parse(golden.pinned);
    INFO("now: " << got.dump());
    CHECK(got["plan"] == meant["plan"]);
    CHECK(got["data"] == meant["data"]);
    CHECK(near(got["test"], meant["test"]));
    REQUIRE(got["lines"].size() == meant["lines"].size());
    for (size_t i = 0; i < got["lines"].size(); ++i)
      for (size_t column = 0; column < 3; ++column) {
        INFO("line " << i << ", column " << column);
        CHECK(near(got["lines"][i][column], meant["lines"][i][column]));
      }
  }
}

}  // namespace
}  // namespace xformer::program_test
