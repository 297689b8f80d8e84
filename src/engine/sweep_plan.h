// What a sweep has before it and behind it: the state of its cells, their data, what they will take.
#pragma once

#include "measure/step_probe.h"
#include "sweep/sweep.h"

namespace xformer::engine {

enum class CellStand { kToDo, kBegun, kCompleted, kGivenUp };

struct CellStanding {
  CellStand kind = CellStand::kToDo;
  std::string words = "to do";
  Json chosen;  // of a run after a search: the values of the best trial; null while that is not known
  [[nodiscard]] bool ended() const { return kind == CellStand::kCompleted || kind == CellStand::kGivenUp; }
};

using CellHistories = std::map<std::string, sweep::CellHistory>;  // by cell

[[nodiscard]] CellHistories histories_in(const Path& out);
// Of each cell what a sweep of them all would find: completed is what has its record in the run directory, of a run
// after a search in that of the plan with the chosen values, which are known once its trials have ended.
[[nodiscard]] std::vector<CellStanding> standings_of(const sweep::Experiment& experiment,
                                                     const std::vector<sweep::Cell>& cells,
                                                     const sweep::SweepOptions& options,
                                                     const CellHistories& histories);
// The cells that are not completed.
[[nodiscard]] std::vector<const sweep::Cell*> incomplete(const std::vector<sweep::Cell>& cells,
                                                         const std::vector<CellStanding>& standings);

// Where the sweep's words say that a plan's data is.
[[nodiscard]] data::DataLocation location_of(const RunPlan& plan, const sweep::SweepOptions& options);

// The data of cells that are to be run, each set opened once as a run opens it: what is missing or damaged is known
// before the first cell, and packed before several want to. Of sets that are generated only on demand.
class SweepData {
 public:
  SweepData(const std::vector<const sweep::Cell*>& cells, const sweep::SweepOptions& options,
            const ProgressCallback& progress, bool generated_too);
  // nullptr for what is generated on first use, and for what cannot be had.
  [[nodiscard]] const data::DataSource* of(const sweep::Cell& cell) const;
  // Cells that would find no data.
  [[nodiscard]] const std::set<std::string>& lacking() const { return lacking_; }
  // One line for each cause, with its cells counted; "" when nothing is missing.
  [[nodiscard]] std::string problems() const;

 private:
  std::map<std::string, std::unique_ptr<data::DataSource>> sources_;
  std::map<std::string, std::string> key_of_;  // by cell
  std::map<std::string, int64_t> causes_;      // cells by what the run would say
  std::set<std::string> lacking_;              // ids
};

// The table of --dry-run: sums, tasks, cells. With `probe`, what no earlier record tells is measured by it.
void print_sweep_plan(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
                      const std::vector<CellStanding>& standings, const sweep::SweepOptions& options,
                      const SweepData& data, const measure::BenchRun* probe);

}  // namespace xformer::engine
