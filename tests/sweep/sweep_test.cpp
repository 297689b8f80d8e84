// Sweeps of a program that only plays the part of `xformer train`.
#include "sweep/sweep.h"

#include <sstream>
#include <thread>

#include "experiment_file.h"

namespace xformer::sweep_test {
namespace {

using Catch::Matchers::Contains;
using sweep::Cell;
using sweep::SweepOptions;
using sweep::SweepProgress;

// What each model's run comes to; every start adds a line to the file `starts`.
constexpr const char* kProgram = R"sh(#!/bin/sh
out= model= micro= from= batch=0
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2 ;;
    --model) model=$2 ;;
    --init-from) from=$2 ;;
    training.micro_batch=*) micro=${1#*=} ;;
    training.batch=*) batch=${1#*=} ;;
  esac
  shift
done
echo "$model gpu=$CUDA_VISIBLE_DEVICES micro=$micro from=${from##*/}" >> STARTS
complete() {
  echo '{"schema_version": 1, "status": "completed", "accuracy": 0.5, "train_seconds": 2, "evaluation_seconds": 1,
    "selection": {"split": "dev", "best": {"accuracy": 0.'"$batch"'}}}' > "$out/record.json"
  exit 0
}
first() { if [ -f "$out/tried" ]; then return 1; fi; touch "$out/tried"; }
case $model in
  linear) if first; then echo 'xformer: a hiccup'; exit 70; fi ;;
  linformer) echo 'xformer: no such file'; exit 3 ;;
  softmax) if [ "$micro" != 2 ]; then echo '{"schema_version": 1, "status": "out-of-memory", "message": "out of memory"}' > "$out/record.json"; exit 4; fi ;;
  reformer) if first; then kill -9 $$; fi ;;
  luna) sleep 0.4 ;;
  fmm) if [ -f REFUSED ]; then echo 'xformer: No space left on device'; exit 4; fi ;;
  local-window) trap 'exit 6' TERM; touch "$out/waits"; while :; do sleep 0.05; done ;;
  longformer) touch "$out/waits"; exec sleep 60 ;;
esac
complete
)sh";

class Place {
 public:
  Place() {
    std::string text = kProgram;
    text.replace(text.find("STARTS"), 6, (folder_ / "starts").string());
    text.replace(text.find("REFUSED"), 7, refused.string());
    put(folder_ / "program", text);
    std::filesystem::permissions(folder_ / "program", std::filesystem::perms::owner_all);
    options.out = folder_ / "out";
    options.record_to = folder_ / "records";
    options.program = folder_ / "program";
    options.data = [](const RunPlan&) { return std::vector<std::string>{}; };
  }
  // Lines of `starts`, sorted.
  [[nodiscard]] std::vector<std::string> starts() const {
    std::istringstream text(scratch::get(folder_ / "starts"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }
  [[nodiscard]] Json record(const Cell& cell) const {
    const Path path = options.record_to / cell.place / "record.json";
    return std::filesystem::exists(path) ? read_json_file(path) : Json();
  }
  SweepProgress run(const ExperimentFile& file) {
    sweep::SweepObserver observer;
    return sweep::run_sweep(file.read(), file.cells(), options, observer);
  }

 private:
  Folder folder_;

 public:
  const Path refused = folder_ / "refused";  // while it is there, the machine refuses fmm's cells
  SweepOptions options;
};

std::string experiment(const std::string& models, const std::string& more = "") {
  return R"({"tasks": ["listops"], "set": {"training.batch": 8}, "models": [)" + models + "]" + more + "}";
}

}  // namespace

TEST_CASE("every cell ends in a record, whatever became of it, and nothing is run twice") {
  Place place;
  const ExperimentFile file(experiment(R"("none", "linear", "linformer", "softmax", "reformer")"));
  const std::vector<Cell> cells = file.cells();
  const SweepProgress result = place.run(file);
  CHECK(result.completed == 4);
  CHECK(result.failed == 1);
  const std::vector<std::string> starts{
      "linear gpu= micro= from=",  "linear gpu= micro= from=",   "linformer gpu= micro= from=",
      "none gpu= micro= from=",    "reformer gpu= micro= from=", "reformer gpu= micro= from=",
      "softmax gpu= micro= from=", "softmax gpu= micro=2 from=", "softmax gpu= micro=4 from="};
  CHECK(place.starts() == starts);
  for (const Cell& cell : cells) {
    const Json record = place.record(cell);
    REQUIRE(record.is_object());
    CHECK(record["experiment"] == "paper/table");
    const bool failed = cell.plan.attention == "linformer";
    CHECK(record["status"] == (failed ? "failed" : "completed"));
    if (failed) CHECK(record["message"] == "no such file");
  }
  CHECK(place.run(file).completed == 4);
  CHECK(place.starts() == starts);
  // What was given up is tried again when a person says so, and only that.
  place.options.retry_failed = true;
  CHECK(place.run(file).failed == 1);
  CHECK(place.starts().size() == starts.size() + 1);
}

TEST_CASE("a sweep ends at once where the machine refuses what every cell needs, and goes on when it does not") {
  Place place;
  put(place.refused, "");
  const ExperimentFile file(experiment(R"("none", "fmm", "linear")"));
  const std::vector<Cell> cells = file.cells();
  CHECK_THROWS_WITH(place.run(file), Contains(cells[1].label + ": No space left on device; other cells") &&
                                         Contains("1 of 3 are completed, and the same command goes on"));
  CHECK(place.starts() ==
        std::vector<std::string>{"fmm gpu= micro= from=", "fmm gpu= micro= from=", "none gpu= micro= from="});
  CHECK(place.record(cells[1]).is_null());  // nothing was given up
  CHECK(place.record(cells[2]).is_null());
  std::filesystem::remove(place.refused);
  CHECK(place.run(file).completed == 3);
}

TEST_CASE("what has its record is not run again, in whatever folder the runs lie") {
  Place place;
  const ExperimentFile file(experiment(R"("none", "linear", "linformer")"));
  const std::vector<Cell> cells = file.cells();
  CHECK(sweep::unrecorded(cells, place.options.record_to).size() == 3);
  CHECK(place.run(file).completed == 2);
  const std::vector<Cell> rest = sweep::unrecorded(cells, place.options.record_to);
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].plan.attention == "linformer");  // it failed, so nothing is known of it

  // A sweep elsewhere that fails leaves what another one reached.
  const Path kept = place.options.record_to / cells[2].place / "record.json";
  Json record = place.record(cells[0]);
  record["model"] = "linformer";
  scratch::put(kept, record.dump());
  place.options.out /= "elsewhere";
  CHECK(place.run(file).failed == 1);
  CHECK(read_json_file(kept) == record);
  CHECK(sweep::unrecorded(cells, place.options.record_to).empty());
}

TEST_CASE("what only a recorded run needed is not run either") {
  Place place;
  const ExperimentFile file(experiment(R"("none", "linear")", R"(, "stages": [{"name": "a"}, {"name": "b"}])"));
  const std::vector<Cell> cells = file.cells();
  REQUIRE(cells.size() == 4);
  CHECK(place.run(file).completed == 4);
  CHECK(sweep::unrecorded(cells, place.options.record_to).empty());
  std::filesystem::remove(place.options.record_to / cells[3].place / "record.json");
  const std::vector<Cell> rest = sweep::unrecorded(cells, place.options.record_to);
  REQUIRE(rest.size() == 2);
  CHECK((rest[0].id == cells[2].id && rest[1].before == 0U));
}

TEST_CASE("a run after a search is looked for by its sweep: its record's place is the search's to say") {
  Place place;
  const ExperimentFile file(
      experiment(R"("none")", R"(, "search": {"over": {"training.learning_rate": [0.1, 0.2]}, "method": "grid"})"));
  const std::vector<Cell> cells = file.cells();
  const Path guess = place.options.record_to / cells.back().place / "record.json";
  std::filesystem::create_directories(guess.parent_path());
  scratch::put(guess, R"({"schema_version": 1, "status": "completed"})");
  CHECK(sweep::unrecorded(cells, place.options.record_to).size() == cells.size());
}

TEST_CASE("a cause that several cells have is told once, and its cells are counted") {
  Place place;
  const ExperimentFile file(experiment(R"("linformer")", R"(, "seeds": "0-3")"));
  struct Listener : sweep::SweepObserver {
    std::vector<std::string> heard;
    void on_message(const std::string& line) override { heard.push_back(line); }
  } listener;
  const SweepProgress result = sweep::run_sweep(file.read(), file.cells(), place.options, listener);
  CHECK(listener.heard == std::vector<std::string>{"listops/linformer/seed 0: failed: no such file"});
  CHECK(result.causes == std::map<std::string, int64_t>{{"failed: no such file", 4}});
}

TEST_CASE("cells are left out with those that need them") {
  const ExperimentFile file(experiment(R"("none", "linear")", R"(, "stages": [{"name": "a"}, {"name": "b"}])"));
  const std::vector<Cell> cells = file.cells();
  REQUIRE(cells.size() == 4);
  REQUIRE(cells[1].before == 0U);
  const std::vector<Cell> rest = sweep::without(cells, {cells[0].id});
  REQUIRE(rest.size() == 2);
  CHECK(rest[0].id == cells[2].id);
  CHECK(rest[1].before == 0U);
  CHECK(sweep::without(cells, {}).size() == 4);
}

TEST_CASE("the journal tells every start and end, and survives a torn line") {
  Place place;
  const ExperimentFile file(experiment(R"("linear")"));
  std::filesystem::create_directories(place.options.out);
  put(place.options.out / "journal.jsonl", "{\"event\": \"started\", \"cell\": \"to");
  place.run(file);
  const std::string cell = file.cells()[0].id;
  std::vector<std::string> events;
  for (const Json& entry : sweep::Journal(place.options.out / "journal.jsonl").entries())
    if (entry.value("cell", "") == cell)
      events.push_back(entry["event"].get<std::string>() + " " + entry.value("status", ""));
  CHECK(events == std::vector<std::string>{"started ", "ended failed", "started ", "ended completed"});
  const auto history = sweep::Journal(place.options.out / "journal.jsonl").histories()[cell];
  CHECK(history.attempts == 2);
  CHECK(history.failures == 1);
  CHECK(history.completed);
}

TEST_CASE("a stage hands its folder to the next; when it fails, so does what needs it") {
  Place place;
  const ExperimentFile file(experiment(R"("none", "linformer")", R"(, "steps": 10, "retries": 0,
    "stages": [{"name": "first", "steps": 5}, {"name": "second"}])"));
  const SweepProgress result = place.run(file);
  CHECK(result.completed == 2);
  CHECK(result.failed == 2);
  CHECK(place.starts() ==
        std::vector<std::string>{"linformer gpu= micro= from=", "none gpu= micro= from=", "none gpu= micro= from=0"});
  const Json record = place.record(file.cells()[3]);
  CHECK_THAT(record["message"].get<std::string>(), Contains("listops/linformer/seed 0 (first)"));
  // Only what tables show has a record there.
  CHECK(place.record(file.cells()[0]).is_null());
}

TEST_CASE("a search runs its trials, then its best with every seed, and keeps its course in the records") {
  Place place;
  const ExperimentFile file(
      experiment(R"("none")", R"(, "seeds": "0-1", "search": {"over": {"training.batch": [2, 5, 4]}})"));
  const SweepProgress result = place.run(file);
  CHECK(result.cells == 5);
  CHECK(result.completed == 5);
  // With seed 0 the chosen trial is the run: four starts for five cells.
  CHECK(place.starts().size() == 4);
  for (const size_t i : {3, 4}) {
    const Cell run = sweep::with_values(file.cells()[i], {{"training.batch", 5}});
    const Json record = place.record(run);
    REQUIRE(record.is_object());
    CHECK(record["search"]["chosen"] == Json{{"training.batch", 5}});
    CHECK(record["search"]["trials"].size() == 3);
    // Among the trials it is what tells the run's record from theirs.
    CHECK(read_json_file(place.options.out / run.place / "record.json")["search"] == record["search"]);
  }
  CHECK_FALSE(read_json_file(place.options.out / file.cells()[0].place / "record.json").contains("search"));
  // Where every trial fails there is nothing to run, and the records say why.
  Place other;
  const ExperimentFile failing(
      experiment(R"("linformer")", R"(, "retries": 0, "search": {"over": {"training.batch": [2, 4]}})"));
  CHECK(other.run(failing).failed == 3);
  CHECK_THAT(other.record(failing.cells()[2])["message"].get<std::string>(), Contains("none of its trials completed"));
}

TEST_CASE("two sweeps over one file share its cells") {
  Place place;
  const ExperimentFile file(experiment(R"("luna")", R"(, "seeds": "0-5")"));
  std::vector<SweepProgress> results(2);
  std::vector<std::thread> threads;
  for (SweepProgress& result : results) threads.emplace_back([&] { result = place.run(file); });
  for (std::thread& thread : threads) thread.join();
  for (const SweepProgress& result : results) CHECK(result.completed == 6);
  CHECK(place.starts().size() == 6);
}

TEST_CASE("cells run side by side on the devices that are there") {
  Place place;
  place.options.jobs = 2;
  place.options.gpus = {"3", "5"};
  const ExperimentFile file(experiment(R"("luna")", R"(, "seeds": "0-3")"));
  CHECK(place.run(file).completed == 4);
  const std::vector<std::string> starts = place.starts();
  CHECK(std::count(starts.begin(), starts.end(), "luna gpu=3 micro= from=") == 2);
  CHECK(std::count(starts.begin(), starts.end(), "luna gpu=5 micro= from=") == 2);
}

TEST_CASE("a sweep that is stopped lets its cells save, and counts none as killed that did not listen yet") {
  Place place;
  const ExperimentFile file(experiment(GENERATE(R"("local-window")", R"("longformer")")));
  const Path waits = place.options.out / file.cells()[0].place / "waits";
  place.options.stop_requested = [&] { return std::filesystem::exists(waits); };
  CHECK_THROWS_WITH(place.run(file), Contains("0 of 1 cells are completed; the same command goes on"));
  const auto entries = sweep::Journal(place.options.out / "journal.jsonl").entries();
  REQUIRE(entries.size() >= 2);
  CHECK(entries[entries.size() - 2].value("status", "") == "interrupted");
}

TEST_CASE("earlier records tell what a cell will take") {
  const ExperimentFile file(
      R"({"tasks": ["listops"], "models": ["none", "linear"], "steps": 200, "set": {"training.batch": 8}})");
  const std::vector<Cell> cells = file.cells();
  sweep::Estimator estimator;
  CHECK_FALSE(estimator.of(cells[0].plan));
  Json plan = cells[0].plan.to_json();
  plan["training.batch"] = 4;
  const auto record = [&](const std::string& hash, double seconds, double steps, double peak) {
    return parse_run_record({{"status", "completed"},
                             {"plan_hash", hash},
                             {"task", "listops"},
                             {"model", "none"},
                             {"plan", plan},
                             {"steps", {{"done", steps}}},
                             {"train_seconds", seconds},
                             {"evaluation_seconds", 1},
                             {"peak_process_bytes", peak}});
  };
  // 100 steps of 4 took 10 s: 200 of 8 take four times as long.
  estimator.learn(record("another", 9, 100, 5e6));
  REQUIRE(estimator.of(cells[0].plan));
  CHECK(estimator.of(cells[0].plan)->seconds == Approx(40));
  CHECK(estimator.of(cells[0].plan)->peak_bytes == Approx(10e6));  // twice the batch, and no more than twice the memory
  CHECK_FALSE(estimator.of(cells[1].plan));
  // Another size of the same model is another matter, what only decides how it is trained is none.
  sweep::Estimator other;
  for (const auto& [key, value] :
       {std::pair<const char*, Json>{"model.dim", 4096}, {"data.max_length", 9}, {"training.precision", "bf16"}}) {
    REQUIRE(plan.contains(key));
    const Json before = std::exchange(plan[key], value);
    other.learn(record("larger", 900, 100, 5e9));
    plan[key] = before;
    INFO(key);
    CHECK_FALSE(other.of(cells[0].plan));
  }
  plan["training.learning_rate"] = 0.5;
  other.learn(record("faster", 9, 100, 5e6));
  CHECK(other.of(cells[0].plan)->seconds == Approx(40));
  estimator.learn(record(cells[0].plan.hash(), 29, 200, 7e6));
  CHECK(estimator.of(cells[0].plan)->seconds == Approx(30));
  CHECK(estimator.of(cells[0].plan)->from == "the same plan");
  CHECK(estimator.typical_seconds() == Approx(20));
  // What another model takes follows from its operations: 2,000 of this one's examples were 2e12 FLOP in 30 s.
  CHECK_FALSE(estimator.by_operations(cells[1].plan, 1e6, 1000));
  Json counted{{"status", "completed"},
               {"plan_hash", "x"},
               {"task", "listops"},
               {"model", "none"},
               {"plan", {{"training.batch", 4}}},
               {"steps", {{"done", 500}}},
               {"train_seconds", 30},
               {"flops", {{"forward_per_example", 1e9}, {"length", 8}}}};
  sweep::Estimator by_flops;
  by_flops.learn(parse_run_record(counted));
  CHECK(by_flops.by_operations(cells[1].plan, 2e9, 500)->seconds == Approx(15));
  CHECK(by_flops.by_operations(cells[1].plan, 2e9, 500)->from == "other models, by operations");
  estimator.learn(parse_run_record({{"status", "failed"}, {"plan_hash", cells[1].plan.hash()}}));
  estimator.learn(parse_run_record(Json::parse("[1, 2]")));
  CHECK_FALSE(estimator.of(cells[1].plan));
}

}  // namespace xformer::sweep_test
