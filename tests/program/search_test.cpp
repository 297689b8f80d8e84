// A search from its trials to the report: which run is the chosen one, whoever starts it and wherever its record lies.
#include "program.h"

namespace xformer::program_test {
namespace {

constexpr const char* kSearched = R"({
  "title": "Searched", "tasks": ["listops"], "models": ["none"], "seeds": "0-1", "steps": 2,
  "search": {"over": {"training.learning_rate": [RATES]}},
  "set": {"model.dim": 16, "model.head_dim": 8, "model.ff_dim": 16, "model.classifier_dim": 16, "data.min_length": 10,
          "data.max_length": 60, "data.train_examples": 64, "data.dev_examples": 32, "data.test_examples": 32,
          "training.batch": 8, "training.eval_every": 2}})";

void put_search(const Place& place, const std::string& rates) {
  std::string text = kSearched;
  text.replace(text.find("RATES"), 5, rates);
  std::filesystem::create_directories(place / "small");
  scratch::put(place / "small/search.json", text);
}

// Lines of what is printed to be run elsewhere.
std::vector<std::string> printed_commands(const Place& place) {
  std::istringstream text(place.run(words("sweep small/search.json --threads 1 --out out --executor print")).out);
  std::vector<std::string> result;
  for (std::string line; std::getline(text, line);) result.push_back(line);
  return result;
}

// The rates of the runs that a report's cells are made of.
std::vector<double> reported_rates(const Place& place, const std::string& records) {
  const Outcome outcome = place.run(words("report small/search.json --format json --records " + records));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  std::vector<double> result;
  const Json report = Json::parse(outcome.out);
  for (const Json& cell : report["cells"])
    for (const Json& run : cell["runs"])
      result.push_back(json_file(place / run["record"].get<std::string>())["plan"]["training.learning_rate"]);
  return result;
}

}  // namespace

TEST_CASE("the run after a search is the chosen one, also for those who only look", "[sweep]") {
  const Place place;
  put_search(place, "0.01, 0.02");
  const auto dry_run = [&] { return place.run(words("sweep small/search.json --out out --dry-run")).out; };
  CHECK(contains(dry_run(), "4 cells, 4 to run"));
  const std::vector<std::string> trials = printed_commands(place);
  REQUIRE(trials.size() == 2);
  for (const std::string& command : trials) REQUIRE(place.command({"/bin/sh", "-c", command}).code == 0);
  // The last in the order of paths is to be the best.
  const std::vector<Path> runs = runs_in(place / "out");
  REQUIRE(runs.size() == 2);
  for (const Path& run : runs) {
    Json record = json_file(run / "record.json");
    for (Json& metric : record["metrics"])
      if (metric["split"] == "dev") metric["value"] = run == runs.back() ? 1.0 : 0.0;
    scratch::put(run / "record.json", record.dump());
  }
  const double best = json_file(runs.back() / "record.json")["plan"]["training.learning_rate"];
  // With the seed of the trials the best of them is the run; with the other seed it is still to be made.
  CHECK(contains(dry_run(), "4 cells, 1 to run"));
  const std::vector<std::string> rest = printed_commands(place);
  REQUIRE(rest.size() == 1);
  CHECK((contains(rest[0], "--seed 1 ") && contains(rest[0], fmt::format("training.learning_rate={} ", best))));

  const Words sweep = words("sweep small/search.json --threads 1 --out out --record-to kept");
  const Outcome outcome = place.run(sweep);
  INFO(outcome.err);
  REQUIRE(contains(outcome.out, "4 of 4 cells completed"));
  for (const char* records : {"out", "kept"}) CHECK(reported_rates(place, records) == std::vector<double>(2, best));
  CHECK_FALSE(contains(place.run(words("report small/search.json --records out")).err, "of no run"));

  // What was completed and is gone is to be run again, whatever the journal says.
  for (const Path& run : runs_in(place / "out"))
    if (run.filename() == "1") std::filesystem::remove_all(run);
  CHECK(contains(dry_run(), "4 cells, 1 to run"));
  CHECK(printed_commands(place) == rest);
  CHECK(contains(place.run(words("sweep small/search.json --out out --executor slurm --dry-run")).out, "cells=("));

  // A wider search has not chosen yet: what an earlier one chose is no run of it.
  put_search(place, "0.01, 0.02, 0.03");
  for (const char* records : {"out", "kept"}) CHECK(reported_rates(place, records).empty());
}

}  // namespace xformer::program_test
