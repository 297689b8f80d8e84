// The runs that an experiment asks for: one cell is one process of `xformer train`.
#pragma once

#include <set>

#include "plan/options.h"
#include "sweep/experiment.h"

namespace xformer::sweep {

enum class CellKind {
  kStage,  // comes before another cell, which begins with its weights
  kTrial,  // of a search
  kRun,    // what tables show
};

struct Cell {
  std::string id;     // of all that decides its result: 16 hex digits and the seed; the same in every call
  std::string label;  // "listops/mrs-softmax/seed 2 model.layers=4", for people and patterns
  CellKind kind = CellKind::kRun;
  Ask ask;
  int64_t seed = 0;
  // Of a run after a search: without what the search will choose. Of one that begins with another's weights: with the
  // hash of that cell's id in place of theirs.
  RunPlan plan;
  std::string place;            // of its run directory, below the sweep's: task/model/hash/seed
  Json tried = Json::object();  // of a trial: the values of the search's axes
  std::optional<size_t> before;
  std::vector<size_t> trials;  // whose best this run takes

  // What makes the run: "train --task ... --seed ...", without paths.
  [[nodiscard]] std::vector<std::string> words() const;
};

// In an order in which each cell comes after those it needs. UserErrors name the file, the task and the model: unknown
// names and options, the same cell twice, nothing to run; a name under waits_for that is registered or not asked for.
[[nodiscard]] std::vector<Cell> expand(const Experiment& experiment);

// The runs with a part of their label that a pattern fits ("text/mrs-*"), or whose id it is, and what they need.
// UserError when there is none.
[[nodiscard]] std::vector<Cell> only(const std::vector<Cell>& cells, const std::string& pattern,
                                     const std::string& option = "--only");

// The runs that have no completed record below `records`, where records are to stay (SweepOptions::record_to), and what
// they need. Where that of a run after a search would lie is not known before its trials, so such a run stays.
[[nodiscard]] std::vector<Cell> unrecorded(const std::vector<Cell>& cells, const Path& records);

// All but those of these ids and what needs them.
[[nodiscard]] std::vector<Cell> without(const std::vector<Cell>& cells, const std::set<std::string>& ids);

// A run after its search: with the values of the chosen trial.
[[nodiscard]] Cell with_values(const Cell& run, const Json& values);

// "task/model/hash/seed": where runs and records of a plan lie below a folder.
[[nodiscard]] std::string place_of(const RunPlan& plan, const std::string& hash);
// A plan's run directory there. One that lies under the model's canonical name, as an older program put what was
// called otherwise, stays where it is.
[[nodiscard]] Path place_below(const Path& folder, const RunPlan& plan, const std::string& suffix = "");

// A run that the experiment leaves out because it waits for names.
struct WaitingRun {
  Ask ask;
  int64_t seed = 0;
  std::vector<std::string> names;  // that are not there yet
};
[[nodiscard]] std::vector<WaitingRun> waiting_runs(const Experiment& experiment);

}  // namespace xformer::sweep
