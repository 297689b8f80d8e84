// Experiment files and the cells they ask for.
#include "experiment_file.h"

#include <set>

namespace xformer::sweep_test {
namespace {

using Catch::Matchers::Contains;
using sweep::Cell;
using sweep::CellKind;

std::vector<std::string> labels(const std::vector<Cell>& cells) {
  std::vector<std::string> result;
  for (const Cell& cell : cells) result.push_back(cell.label);
  return result;
}

}  // namespace

TEST_CASE("cells of one name say what tells them apart") {
  const ExperimentFile file(R"({
    "tasks": [{"task": "text", "length": 64}, {"task": "text", "length": 32}],
    "models": ["linear", {"model": "linear", "steps": 80, "set": {"attention.norm": "sqrt-n"}}, "none"],
    "seeds": "0", "steps": 40})");
  CHECK(labels(file.cells()) == std::vector<std::string>{"text/linear/seed 0 length=64",
                                                         "text/linear/seed 0 length=64 attention.norm=sqrt-n steps=80",
                                                         "text/none/seed 0 length=64", "text/linear/seed 0 length=32",
                                                         "text/linear/seed 0 length=32 attention.norm=sqrt-n steps=80",
                                                         "text/none/seed 0 length=32"});
}

TEST_CASE("misspelt patterns, and an exclusion of all, are told") {
  const auto file = [](const std::string& more) {
    return ExperimentFile(R"({"tasks": ["listops"], "models": ["linear", "none"], )" + more + "}");
  };
  const auto message = [&](const std::string& more) {
    return scratch::message_of<UserError>([&] { static_cast<void>(file(more).cells()); });
  };
  CHECK_THAT(message(R"("cases": [{"where": {"task": "listop"}, "steps": 5}])"),
             Contains("cases: unknown task 'listop'; did you mean 'listops'?"));
  CHECK_THAT(message(R"("exclude": [{"task": "listops", "model": "lineer"}])"),
             Contains("exclude: unknown model 'lineer'; did you mean 'linear'?"));
  CHECK_THAT(message(R"("exclude": [{"task": "uae/*"}])"), Contains("exclude: unknown task 'uae/*'"));
  CHECK_THAT(message(R"("exclude": [{"task": "listops"}])"), Contains("exclude leaves no run"));
  // Of an experiment that this one may extend.
  CHECK(
      file(R"("exclude": [{"task": "uea/JapaneseVowels", "model": "*performer"}, {"task": "text"}])").cells().size() ==
      2);
}

TEST_CASE("a grid is every task with every model and seed, the stronger setting wins") {
  const ExperimentFile file(R"({
    "tasks": ["listops", {"task": "text", "length": 500, "set": {"training.batch": 8}}],
    "models": ["softmax", {"model": "linformer", "set": {"attention.projected_len": 16}}],
    "seeds": "0-1", "steps": 40, "set": {"training.batch": 4, "training.eval_every": 20},
    "cases": [{"where": {"task": "text", "model": "lin*"}, "set": {"training.batch": 2}}],
    "exclude": [{"task": "text", "model": "softmax"}]})");
  const std::vector<Cell> cells = file.cells();
  CHECK(labels(cells) == std::vector<std::string>{"listops/softmax/seed 0", "listops/softmax/seed 1",
                                                  "listops/linformer/seed 0", "listops/linformer/seed 1",
                                                  "text/linformer/seed 0", "text/linformer/seed 1"});
  const auto value = [&](size_t cell, const char* key) { return cells[cell].plan.options.values[key].get<int64_t>(); };
  CHECK(value(0, "training.batch") == 4);
  CHECK(value(4, "training.batch") == 2);
  CHECK(value(4, "data.length") == 500);
  CHECK(value(4, "attention.projected_len") == 16);
  CHECK(value(4, "training.steps") == 40);
  CHECK(file.read().name == "paper/table");
  // The same cell has the same id at every reading, and another seed another id.
  std::set<std::string> ids;
  for (const Cell& cell : cells) ids.insert(cell.id);
  CHECK(ids.size() == cells.size());
  CHECK(file.cells()[4].id == cells[4].id);
  // The words of the command make that very plan.
  const std::vector<std::string> words = cells[4].words();
  CHECK(std::find(words.begin(), words.end(), "attention.projected_len=16") != words.end());
  CHECK(std::find(words.begin(), words.end(), "training.batch=2") != words.end());
}

TEST_CASE("a file extends another, and its settings are merged") {
  const ExperimentFile file(R"({"extends": "../base.json", "models": ["none"], "set": {"training.eval_every": 5}})");
  put(file.path().parent_path().parent_path() / "base.json",
      R"({"tasks": ["listops"], "models": ["softmax", "linear"], "steps": 10, "set": {"training.batch": 4}})");
  const std::vector<Cell> cells = file.cells();
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].plan.attention == "none");
  CHECK(cells[0].plan.options.values["training.batch"] == 4);
  CHECK(cells[0].plan.options.values["training.eval_every"] == 5);
}

TEST_CASE("a stage begins with the weights of the one before, which is run once for all that need it") {
  const ExperimentFile file(R"({
    "tasks": ["text"], "models": ["linear"], "steps": 10, "grid": {"training.learning_rate": [0.1, 0.2]},
    "stages": [{"name": "pretrain", "task": "listops", "set": {"data.max_length": 500}}, {"name": "finetune", "steps": 5}]})");
  const std::vector<Cell> cells = file.cells();
  CHECK(labels(cells) == std::vector<std::string>{"listops/linear/seed 0 (pretrain)",
                                                  "text/linear/seed 0 training.learning_rate=0.1",
                                                  "text/linear/seed 0 training.learning_rate=0.2"});
  CHECK(cells[0].kind == CellKind::kStage);
  CHECK(cells[1].before == 0U);
  CHECK(cells[2].before == 0U);
  CHECK(cells[1].plan.options.values["training.steps"] == 5);
  CHECK(cells[0].plan.options.values["training.steps"] == 10);
  // What its predecessor is decides its result, too.
  const std::string longer = scratch::get(file.path());
  const ExperimentFile other(std::string(longer).replace(longer.find("500"), 3, "400"));
  CHECK(other.cells()[1].id != cells[1].id);
  // An option that only makes sense with weights to begin with.
  const ExperimentFile reinit(R"({"tasks": ["listops"], "models": ["linear"], "stages": [{"name": "first"},
    {"name": "second", "set": {"training.reinit": "head.*"}}]})");
  CHECK(reinit.cells().size() == 2);
}

TEST_CASE("a search tries its values with its own seeds; a random one is the same at every reading") {
  const ExperimentFile grid(R"({"tasks": ["listops"], "models": ["linear"], "seeds": "0-2", "search":
    {"over": {"training.batch": [4, 8], "training.learning_rate": [0.1, 0.01]}, "seeds": [7]}})");
  std::vector<Cell> cells = grid.cells();
  REQUIRE(cells.size() == 4 + 3);
  CHECK(cells[0].kind == CellKind::kTrial);
  CHECK(cells[0].seed == 7);
  CHECK(cells[3].tried == Json::parse(R"({"training.batch": 8, "training.learning_rate": 0.01})"));
  CHECK(cells[6].trials == std::vector<size_t>{0, 1, 2, 3});
  const Cell chosen = sweep::with_values(cells[6], cells[3].tried);
  CHECK(chosen.plan.options.values["training.batch"] == 8);
  CHECK(chosen.id == cells[6].id);

  const ExperimentFile random(
      R"({"tasks": ["listops"], "models": ["linear"], "search": {"method": "random", "budget": 50,
    "over": {"training.learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
             "model.layers": {"low": 1, "high": 4, "whole": true}, "training.optimizer": ["adamw", "radam"]}}})");
  cells = random.cells();
  const std::vector<Cell> again = random.cells();
  REQUIRE(cells.size() == 51);
  std::set<int64_t> layers;
  int64_t small = 0, radam = 0;
  for (size_t i = 0; i < 50; ++i) {
    const auto rate = cells[i].tried["training.learning_rate"].get<double>();
    CHECK(rate >= 1e-4);
    CHECK(rate <= 1e-2);
    small += rate < 1e-3 ? 1 : 0;
    layers.insert(cells[i].tried["model.layers"].get<int64_t>());
    radam += cells[i].tried["training.optimizer"] == "radam" ? 1 : 0;
    CHECK(cells[i].tried == again[i].tried);
  }
  CHECK(layers == std::set<int64_t>{1, 2, 3, 4});
  // Half of a logarithmic range lies below its geometric mean: 25 expected, 3.5 the standard deviation.
  CHECK(small > 10);
  CHECK(small < 40);
  CHECK(radam > 10);
  CHECK(radam < 40);
}

TEST_CASE("only what a pattern fits is run, with what it needs") {
  const ExperimentFile file(R"({"tasks": ["listops", "text"], "models": ["softmax", "mrs-softmax"], "seeds": "0-1",
    "steps": 10, "stages": [{"name": "first", "steps": 5}, {"name": "second"}]})");
  const std::vector<Cell> cells = file.cells();
  CHECK(labels(sweep::only(cells, "*/mrs-*/seed 1")) ==
        std::vector<std::string>{"listops/mrs-softmax/seed 1 (first)", "listops/mrs-softmax/seed 1",
                                 "text/mrs-softmax/seed 1 (first)", "text/mrs-softmax/seed 1"});
  const std::vector<Cell> one = sweep::only(cells, cells[3].id);
  REQUIRE(one.size() == 2);
  CHECK(one[1].id == cells[3].id);
  CHECK(one[1].before == 0U);
  CHECK(sweep::only(cells, "text/").size() == 8);  // a part of the label
  CHECK_THROWS_WITH(sweep::only(cells, "image"), Contains("fits no cell") && Contains("listops/softmax/seed 0"));
}

TEST_CASE("seeds are written as people write them") {
  CHECK(sweep::parse_seeds("0-2,7", "--seeds") == std::vector<int64_t>{0, 1, 2, 7});
  for (const char* text : {"", "a", "3-1", "-1", "1-", "0,,1"})
    CHECK_THROWS_WITH(sweep::parse_seeds(text, "--seeds"), Contains("--seeds: expected seeds like 0-4 or 0,2,7"));
}

TEST_CASE("cells wait for names that are not there yet") {
  const ExperimentFile file(
      R"({"tasks": ["listops", "wiki-40b"], "models": ["softmax", "mega-attention"], "seeds": "0-2",
    "waits_for": {"tasks": ["wiki-40b"], "models": ["mega-attention"]}})");
  CHECK(file.cells().size() == 3);
  const std::vector<sweep::WaitingRun> waiting = sweep::waiting_runs(file.read());
  REQUIRE(waiting.size() == 9);
  CHECK((waiting[0].ask.task == "listops" && waiting[0].ask.model == "mega-attention" && waiting[2].seed == 2));
  CHECK(waiting[0].names == std::vector<std::string>{"mega-attention"});
  CHECK(waiting[3].names == std::vector<std::string>{"wiki-40b"});
  CHECK(waiting[8].names == std::vector<std::string>{"wiki-40b", "mega-attention"});
  CHECK_THAT(ExperimentFile(R"({"tasks": ["listops"], "models": ["softmax"], "waits_for": {"models": ["softmax"]}})")
                 .refusal(),
             Contains("the model 'softmax' is registered: take it off the list"));
  CHECK_THAT(
      ExperimentFile(R"({"tasks": ["listops"], "models": ["softmax"], "waits_for": {"tasks": ["c4"]}})").refusal(),
      Contains("the experiment asks for no task 'c4'"));
}

TEST_CASE("what is wrong in an experiment file is said with its place") {
  const auto refused = [](const std::string& json, const std::string& what) {
    INFO(json);
    CHECK_THAT(ExperimentFile(json).refusal(), Contains("table.json") && Contains(what));
  };
  refused(R"({"taks": ["listops"], "models": ["none"]})", "unknown key 'taks'; did you mean 'tasks'?");
  refused(R"({"tasks": ["listops"]})", "expected a list of models");
  refused(R"({"tasks": [], "models": ["none"]})", "tasks: expected at least one");
  refused(R"({"tasks": ["listops"], "models": [{"name": "none"}]})", "models[0]: unknown key 'name'");
  refused(R"({"tasks": ["listops"], "models": [{"set": {}}]})", "models[0]: expected a \"model\"");
  refused(R"({"tasks": ["listop"], "models": ["none"]})", "did you mean 'listops'?");
  refused(R"({"tasks": ["listops"], "models": ["linfomer"]})", "did you mean 'linformer'?");
  refused(R"({"tasks": ["listops"], "models": ["none"], "set": {"bach": 3}})", "option keys are dotted");
  refused(R"({"tasks": ["listops"], "models": ["none"], "set": {"training.bach": 3}})", "training.bach");
  refused(R"({"tasks": ["listops"], "models": ["none"], "steps": 0})",
          "steps: expected a whole number from 1, got '0'");
  refused(R"({"tasks": ["listops"], "models": ["none"], "seeds": []})", "seeds: expected at least one seed");
  refused(R"({"tasks": ["listops"], "models": ["none", "none"]})", "asked for twice");
  refused(R"({"tasks": ["listops"], "models": ["none"], "published": "nowhere.json"})", "published: there is no");
  refused(R"({"tasks": ["listops"], "models": ["none"], "bench": [["--as", "x"]]})",
          "either measures (bench) or trains");
  refused(R"({"bench": [["--as", "x"]], "metric": "time"})", "metric is of an experiment that trains");
  refused(R"({"tasks": ["listops"], "models": ["none"], "columns": "memory"})", "columns: expected a list");
  refused(
      R"({"tasks": ["listops"], "models": ["none"], "search": {"method": "random", "over": {"training.batch": [1]}}})",
      "needs a budget");
  refused(R"({"tasks": ["listops"], "models": ["none"], "search": {"budget": 1, "over": {"training.batch": [1, 2]}}})",
          "the grid has 2 trials, the budget is 1");
  refused(
      R"({"tasks": ["listops"], "models": ["none"], "search": {"over": {"training.batch": {"low": 1, "high": 2}}}})",
      "search: over: training.batch: expected a list of values");
  refused(R"({"tasks": ["listops"], "models": ["none"], "search": {"method": "random", "budget": 1,
    "over": {"training.batch": {"low": 1, "high": 2, "whole": "yes"}}}})",
          "whole: expected true or false, got '\"yes\"'");
  for (const char* seed : {"-1", "1.5", "\"0\""})
    refused(fmt::format(R"({{"tasks": ["listops"], "models": ["none"], "seeds": [{}]}})", seed),
            "expected a seed from 0");
}

}  // namespace xformer::sweep_test
