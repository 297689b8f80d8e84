// `xformer report` of whole experiments: what waits, what is published, and the page of all of them.
#include <set>

#include "core/text.h"
#include "program.h"

namespace xformer::program_test {
namespace {

const Path kSource = XFORMER_SOURCE;

// By experiment: the lines of its tables on the page.
std::map<std::string, std::vector<std::string>> sections_of(const std::string& page) {
  std::map<std::string, std::vector<std::string>> result;
  std::string name;
  for (const std::string_view line : split(page, '\n')) {
    if (line.starts_with("## ")) name = line.substr(3, line.find(": ") - 3);
    if (line.starts_with("|")) result[name].emplace_back(line);
  }
  return result;
}

// The words of a table's cells, and cells of several words, and how often each is there; of numbers as they are without
// closing zeros.
std::map<std::string, int> words_of(const std::vector<std::string>& lines) {
  std::map<std::string, int> result;
  for (const std::string& line : lines)
    for (const std::string& word : words(line)) {
      char* end = nullptr;
      const double number = std::strtod(word.c_str(), &end);
      ++result[*end == '\0' ? fmt::format("{}", number) : word];
    }
  for (const std::string& line : lines)
    for (const std::string_view cell : split(line, '|'))
      if (trim(cell).find(' ') != std::string_view::npos) ++result[std::string(trim(cell))];
  return result;
}

}  // namespace

TEST_CASE("every published value stands in the report of its experiment, and the committed page is that report",
          "[report]") {
  const Place place;
  const Outcome outcome = place.run({"report", (kSource / "experiments").string(), "--records",
                                     (kSource / "results/runs").string(), "--format", "markdown"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto sections = sections_of(outcome.out);
  const std::set<std::string> papers{"adamra", "combiner", "efficient-transformers", "lra", "mrsformer", "paramixer"};
  int values = 0, texts = 0, digitised = 0, deviations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "experiments")) {
    if (!std::filesystem::exists(entry.path() / "published.json")) continue;
    std::map<std::string, std::map<std::string, int>> expected;  // by experiment: numbers and texts
    const Json published = json_file(entry.path() / "published.json");
    for (const Json& one : published) {
      auto& wanted = expected[one["experiment"]];
      ++wanted[one["value"].is_null() ? one["text"].get<std::string>() : fmt::format("{}", one["value"].get<double>())];
      if (one.contains("std")) ++wanted[fmt::format("{}", one["std"].get<double>())], ++deviations;
      if (one["value"].is_null()) ++texts;
      else if (papers.contains(entry.path().filename())) ++values;
      digitised += one.value("digitised", false) ? 1 : 0;
    }
    for (const auto& [experiment, wanted] : expected) {
      const std::string name = entry.path().filename().string() + "/" + experiment;
      INFO(name);
      REQUIRE(sections.contains(name));
      std::map<std::string, int> shown = words_of(sections.at(name));
      for (const auto& [word, count] : wanted) {
        INFO(word);
        CHECK(shown[word] >= count);
      }
    }
  }
  // All 952 numbers of the papers and slides, two of them as deviations, and what was entered since.
  CHECK(values == 950 + digitised);
  CHECK((digitised == 54 && texts == 65 && deviations >= 23));
  INFO("results/tables/mission.md is out of date: results/README.md has the command that makes it");
  CHECK((outcome.out == scratch::get(kSource / "results/tables/mission.md")));
}

TEST_CASE("attentions are listed with the class and the decoding of the survey's table of systems", "[report]") {
  const Place place;
  std::map<std::string, Json> listed;
  for (const Json& one : Json::parse(place.run({"list", "attentions", "--json"}).out)) listed[one["name"]] = one;
  int compared = 0;
  for (const Json& one : json_file(kSource / "experiments/efficient-transformers/published.json")) {
    if (one["experiment"] != "systems" || one["metric"] == "complexity") continue;
    const Json& ours = listed.at(one["model"]);
    INFO(one.dump());
    CHECK((one["metric"] == "class" ? ours["class"] : ours["traits"]["causal_ok"] ? "yes" : "no") == one["text"]);
    ++compared;
  }
  CHECK(compared == 34);
}

TEST_CASE("an experiment is reported in what its tasks are judged by, whatever a record says", "[report]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/judged.json", R"({
    "title": "Judged", "tasks": ["listops"], "models": ["linear"], "steps": 2,
    "set": {"model.dim": 16, "model.head_dim": 8, "model.ff_dim": 16, "model.classifier_dim": 16, "data.min_length": 10,
            "data.max_length": 60, "data.train_examples": 64, "data.dev_examples": 32, "data.test_examples": 32,
            "training.batch": 8}})");
  const Outcome sweep = place.run(words("sweep small/judged.json --threads 1 --out out --record-to kept"));
  INFO(sweep.err);
  REQUIRE(sweep.code == 0);
  Path file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place / "kept"))
    if (entry.path().filename() == "record.json") file = entry.path();
  REQUIRE(!file.empty());
  const auto report_of = [&](const Json& record) {
    scratch::put(file, record.dump());
    return place.run(words("report small/judged.json --records kept --format markdown")).out;
  };
  Json record = json_file(file);
  const std::string own = report_of(record);
  CHECK(contains(own, "| listops, % |"));
  CHECK_FALSE(contains(own, "not measured"));
  for (Json& one : record["metrics"]) one["title"] = "share", one["unit"] = "points", one["decimals"] = 5;
  CHECK(report_of(record) == own);
  for (Json& one : record["metrics"]) one["name"] = "rmse";
  const std::string other = report_of(record);
  CHECK(contains(other, "| listops, % |"));
  CHECK(contains(other, " 1 not measured\n"));
  CHECK_FALSE(contains(other, "points"));
  // Of two records of the run the newer one counts, wherever it lies.
  Json newer = json_file(file);
  newer["date"] = "2999-01-01T00:00:00Z";
  for (Json& one : newer["metrics"]) one["name"] = "accuracy", one["value"] = 0.875;
  std::filesystem::create_directories(place / "kept/zzz");
  scratch::put(place / "kept/zzz/record.json", newer.dump());
  CHECK(contains(report_of(record), "| 87.50 "));
}

TEST_CASE("an experiment says what its table shows; who asks for something else gets that", "[report]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  const auto put = [&](const std::string& metric) {
    scratch::put(place / "small/shown.json", R"({
      "title": "Shown", "tasks": ["transactions"], "models": ["linear"], "length": 16, "seeds": "0-1", "steps": 2,
      "metric": ")" + metric + R"(", "columns": ["interval", "gini_change_roll", "memory"],
      "set": {"data.mean_events": 10, "data.pairs": 2, "data.train_examples": 40, "data.dev_examples": 20, "data.test_examples": 40,
              "training.batch": 8, "training.eval_every": 2, "eval.shifts": "roll"}})");
  };
  put("train_loss");
  const Outcome sweep = place.run(words("sweep small/shown.json --threads 1 --out out --record-to kept/small/shown"));
  INFO(sweep.err);
  REQUIRE(sweep.code == 0);
  const auto report = [&](const std::string& more) {
    return place.run(words("report small/shown.json --records kept/small/shown --format markdown" + more));
  };
  const std::string own = report("").out;
  INFO(own);
  CHECK(contains(own,
                 "| model | transactions, training loss | transactions 95 % interval, training loss | transactions "
                 "change of Gini by roll, % | "));
  CHECK(contains(own, "transactions peak memory, MB |"));
  CHECK(contains(report(" --metric auc --columns memory").out,
                 "| model | transactions, AUC, % | transactions peak memory, MB |"));
  CHECK(contains(report(" --metric gini_change_roll --columns average").out,
                 "| transactions, change of Gini by roll, %"));
  // What cannot be shown is said.
  CHECK(contains(report(" --metric auc --columns average").err, "--columns average: no row has one"));
  CHECK_FALSE(contains(report(" --metric auc --columns time").err, "no row has one"));
  // The page of a folder shows the same.
  CHECK(contains(place.run(words("report small --records kept --format markdown")).out,
                 "| transactions, training loss |"));
  CHECK(contains(report(" --columns memry").err, "--columns: unknown column 'memry'; did you mean 'memory'?"));
  put("ginni");
  const Outcome wrong = report("");
  CHECK((wrong.code == 2 && contains(wrong.err, "shown.json: metric: unknown metric 'ginni'; did you mean 'gini'?")));
}

TEST_CASE("an experiment that waits is reported with its published values and the names that it waits for",
          "[report]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/published.json", R"([
    {"experiment": "wait", "task": "listops", "model": "later", "metric": "accuracy", "value": 39.57, "std": 0.32, "source": "S"},
    {"experiment": "wait", "task": "later-task", "model": "linear", "metric": "perplexity", "value": 17.26, "source": "S", "length": 64},
    {"experiment": "wait", "task": "listops", "model": "chance", "metric": "accuracy", "value": 10, "source": "S"}])");
  scratch::put(place / "small/wait.json", R"({"title": "Waiting", "published": "published.json",
    "tasks": ["listops", {"task": "later-task", "length": 64}], "models": ["later", "linear"], "seeds": "0-1",
    "waits_for": {"tasks": ["later-task"], "models": ["later"]}})");
  const Outcome report = place.run(words("report small/wait.json"));
  INFO(report.out << report.err);
  REQUIRE(report.code == 0);
  CHECK(report.out.find("| later |") < report.out.find("| linear |"));  // in the file's order
  for (const char* part : {"| 39.57 ± 0.32 |", "| 17.26 |", "| chance | - | 10.00 |", " waits for later\n",
                           " waits for later-task\n", " 2 without record\n", "later-task, perplexity"})
    CHECK(contains(report.out, part));
  // A folder without records is like none.
  std::filesystem::create_directory(place / "empty");
  const Outcome empty = place.run(words("report small/wait.json --records empty"));
  CHECK(empty.code == 0);
  CHECK(empty.out == report.out);
  CHECK(place.run(words("report small/wait.json --records nowhere")).out == report.out);
  // The folder: how far every experiment is, then its table.
  const Outcome page = place.run(words("report small"));
  INFO(page.out << page.err);
  CHECK(page.code == 0);
  for (const char* part : {"| wait | Waiting | 0 | 0 | 3 | 4 | 0 | 8 | 3 | later, later-task |", "## wait: Waiting\n",
                           "| chance | - | 10.00 |"})
    CHECK(contains(page.out, part));
  // Some of its tasks, with what is published of them; what has no say is refused.
  const Outcome some = place.run(words("report small/wait.json --task list*"));
  CHECK((some.code == 0 && contains(some.out, "| 39.57 ± 0.32 |") && !contains(some.out, "later-task")));
  check_case(place, "report small/wait.json --task text", 2, {"there are records of listops, later-task"});
  check_case(place, "report small/wait.json --duplicates all", 2, {"has the newest record of each run"});
  check_case(place, "plot ranks small/wait.json --task text", 2, {"there are records of listops, later-task"});
  for (const char* option : {"--task listops", "--duplicates all", "--digits 1", "--transpose", "--tests"})
    check_case(place, std::string("report small ") + option, 2, {words(option)[0] + " is of runs"});
  // What else lies in the folder is none of its experiments, and says so where it cannot be read.
  scratch::put(place / "small/config.yaml", "task: listops\nmodel: linear\n");
  scratch::put(place / "small/broken.yaml", "models: [linear\n");
  const Outcome beside = place.run(words("report small"));
  CHECK((beside.code == 0 && beside.out == page.out && !contains(beside.err, "config.yaml")));
  CHECK(contains(beside.err, "broken.yaml is left out: "));
  check_case(place, "report small/broken.yaml", 2, {"broken.yaml"});
  for (const char* format : {"html", "csv", "json", "latex"}) {
    const Outcome other = place.run(words("report small --format") + format);
    INFO(format << other.err);
    CHECK((other.code == 0 && contains(other.out, "17.26") && contains(other.out, "Waiting")));
  }
}

}  // namespace xformer::program_test
