// An experiment file: which runs make a table. Format in docs/experiments.md.
//
//   {"title": "...", "tasks": ["listops"], "models": ["softmax", {"model": "mra2", "set": {"attention.block": 32}}],
//    "seeds": "0-2", "set": {"training.eval_every": 500}}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"

namespace xformer::sweep {

// What an entry asks of `xformer train`: the stronger of two gives each value that it has.
struct Ask {
  std::string task, model, protocol;  // "" where the entry leaves it open
  int64_t steps = 0, length = 0;      // 0: not given
  Json set = Json::object();          // option keys of a plan

  [[nodiscard]] Ask under(const Ask& stronger) const;
};

// For the cells whose task and model fit the patterns ('*' is any text; "" fits all).
struct Condition {
  std::string task, model;
  [[nodiscard]] bool holds(const std::string& task_name, const std::string& model_name) const;
};

// One option's values: to be all tried, or, without a list, drawn from a range.
struct Axis {
  std::string key;
  std::vector<Json> values;
  double low = 0, high = 0;
  bool logarithmic = false, whole = false;
};

// For each task and model: trials, of which the one that is best on dev is run with every seed.
struct Search {
  bool random = false;  // else every combination
  int64_t budget = 0;   // trials; 0: all combinations
  std::vector<int64_t> seeds;
  std::vector<Axis> axes;
  Json as_written;
};

struct Stage {
  std::string name;
  Ask ask;
};

struct Experiment {
  std::string name;  // folder and stem: "mrsformer/table-9"; of a file in the working folder the stem alone
  Path file;
  std::string title;
  std::vector<std::string> notes;  // what differs from the paper
  std::vector<Ask> tasks, models;
  std::vector<int64_t> seeds;
  Ask common;
  std::vector<Axis> grid;
  std::vector<std::pair<Condition, Ask>> cases;
  std::vector<Condition> exclude;
  std::vector<Stage> stages;  // run one after the other, each with the weights of the one before; may be empty
  std::optional<Search> search;
  int64_t retries = 1;  // of a cell that failed
  std::optional<Path> published;
  std::string published_name;  // of the entries there that are meant: "published.json#table-8", else the file's stem
  std::vector<std::string> average_over;  // tasks that the average of a row is over; none named: all
  std::string metric;                     // what its table shows in place of scores; "": scores
  std::vector<std::string> columns;       // of its table, as `report --columns` takes them; none named: all
  std::vector<std::string> setup;         // lines of shell before the first cell of a Slurm job: "module load cuda"
  Json bench;  // of an experiment that measures instead of training: words of `xformer bench`; else null
  std::vector<std::string> waits_for_tasks, waits_for_models;  // names that are not there yet

  [[nodiscard]] bool excluded(const std::string& task, const std::string& model) const;
};

// Reads the file and all it extends, and checks its form: what it names is checked by expand (cells.h). UserErrors name
// file, key, what was expected and what came.
[[nodiscard]] Experiment read_experiment(const Path& path);
// The same of what such a file would hold; `path` names it.
[[nodiscard]] Experiment parse_experiment(const Json& json, const Path& path);

// Of a grid that was given in words: written among its runs.
inline constexpr const char* kGridFile = "experiment.json";

// Below `root`: where an experiment's runs lie when nobody says otherwise.
[[nodiscard]] Path usual_folder(const Path& root, const Experiment& experiment);

// "0-4,7" as numbers; UserError with `origin` otherwise.
[[nodiscard]] std::vector<int64_t> parse_seeds(const std::string& text, const std::string& origin);

}  // namespace xformer::sweep
