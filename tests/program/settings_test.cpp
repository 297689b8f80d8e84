// What is asked for, refused before data or device is touched: empty values, what is said twice, too much of something,
// names in an experiment that only its report reads.
#include "program.h"

namespace xformer::program_test {

using scratch::put;

TEST_CASE("an option with an empty value is no option that nobody gave", "[cli]") {
  const Place place;
  for (const char* option : {"--data", "--config", "--init-from", "--limit", "--out", "--record-to", "--protocol"}) {
    CAPTURE(option);
    const Outcome refused =
        place.command(Words{program_path(), "train", "--model", "linear", "--task", "listops", option, ""});
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, std::string(option) + ": expected a value, got ''"));
  }
}

TEST_CASE("of two words for one option the setting counts and is named, and what a run is has one", "[cli]") {
  const Place place;
  const std::string train = "train --model linear --task listops --dry-run ";
  check_case(place, train + "--batch 9 batch=7", 0, {"batch=7 counts, and not --batch", "batch      7"});
  check_case(place, train + "--lr 1 --set training.learning_rate=2", 0, {"training.learning_rate=2 counts"});
  check_case(place, train + "--steps 9 steps=7", 2, {"--steps and steps=7"});
  check_case(place, train + "--seed 1 seed=2", 2, {"--seed and seed=2"});
  check_case(place, train + "task=adding", 2, {"--task and task=adding"});
  check_case(place, train + "batch=7 --set batch=8", 0, {"batch=8 counts, and not batch=7", "batch      8"});
}

TEST_CASE("more layers than any model has are no plan", "[cli]") {
  const Place place;
  check_case(place, "train --model linear --task listops model.layers=100000000 --dry-run", 2,
             {"model.layers", "from 1 to 10000", "100000000"});
}

TEST_CASE("an experiment whose report would show what there is not is not valid", "[sweep]") {
  const Place place;
  const std::string begin = R"({"title": "T", "models": ["linear"], "tasks": ["listops"], "seeds": [0], )";
  put(place / "columns.json", begin + R"("columns": ["listop"]})");
  check_case(place, "validate columns.json", 2, {"columns.json: columns", "listop"});
  put(place / "metric.json", begin + R"("metric": "acuracy"})");
  check_case(place, "validate metric.json", 2, {"metric.json: metric", "acuracy"});
  put(place / "right.json", begin + R"("columns": ["listops", "time"], "metric": "accuracy"})");
  check_case(place, "validate right.json", 0, {});
}

TEST_CASE("a sweep for devices that are not there begins no cell", "[sweep]") {
  const Place place;
  const Outcome refused =
      place.run(words("sweep --model linear --task listops --gpus 0 --steps 1"), {{"CUDA_VISIBLE_DEVICES", "-1"}});
  INFO(refused.err);
  CHECK(refused.code == 4);
  CHECK(contains(refused.err, "CUDA"));
  CHECK_FALSE(std::filesystem::exists(place / "runs"));
}

TEST_CASE("a folder of experiments names the files that it leaves out, but for what others are made of", "[report]") {
  const Place place;
  std::filesystem::create_directories(place / "all");
  put(place / "all/base.json", R"({"tasks": ["listops"], "seeds": [0], "models": ["linear"]})");
  put(place / "all/titled.json", R"({"title": "T", "extends": "base.json"})");
  put(place / "all/forgotten.json", R"({"extends": "base.json"})");
  const Outcome page = place.run(words("report all"));
  INFO(page.err);
  REQUIRE(page.code == 0);
  CHECK(contains(page.err, "all/forgotten.json is left out"));
  CHECK_FALSE(contains(page.err, "base.json is left out"));
}

}  // namespace xformer::program_test
