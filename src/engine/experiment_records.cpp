#include "engine/experiment_records.h"

#include <algorithm>
#include <set>

#include "reporting/run_records.h"
#include "sweep/cells.h"
#include "training/record.h"

namespace xformer::engine {

namespace {

// What a sweep may choose for a run that asks for the rest.
std::set<std::string> free_keys(const sweep::Experiment& experiment) {
  std::set<std::string> keys{"training.micro_batch", "training.init_sha256"};
  if (experiment.search)
    for (const sweep::Axis& axis : experiment.search->axes) keys.insert(axis.key);
  return keys;
}

// What a record of a cell may say: where epochs are counted it has no number of steps, and a CPU has another precision
// than the protocol wishes for.
class Wanted {
 public:
  Wanted(const RunPlan& plan, std::set<std::string> free) : plan_(plan), on_cpu_(plan), free_(std::move(free)) {
    const RunRecord record = record_of_plan(plan, "");
    for (const auto& [key, origin] : plan.options.origins)
      if (!record.plan.contains(key)) free_.insert(key);
    plan::suit_device(on_cpu_, /*on_cuda=*/false);
  }
  [[nodiscard]] bool is(const RunRecord& record) const {
    return plan_differences(record.plan, plan_, free_).empty() || plan_differences(record.plan, on_cpu_, free_).empty();
  }

 private:
  RunPlan plan_, on_cpu_;
  std::set<std::string> free_;
};

Path records_folder(const sweep::Experiment& experiment) {
  const Path kept = sweep::usual_folder("results/runs", experiment);
  return std::filesystem::exists(kept) ? kept : sweep::usual_folder("runs", experiment);
}

void add_records(const sweep::Experiment& experiment, cli::ReportedExperiment& into) {
  const Path& folder = into.folder;
  std::vector<RunRecord> there;
  if (std::filesystem::exists(folder)) there = reporting::read_run_records({folder.string()});
  const std::set<std::string> free = free_keys(experiment);
  std::vector<RunRecord>& result = into.records;
  size_t used = 0;
  for (const sweep::Cell& cell : sweep::expand(experiment)) {
    if (cell.kind != sweep::CellKind::kRun) continue;
    const Wanted wanted(cell.plan, free);
    const RunRecord* best = nullptr;
    for (const RunRecord& record : there) {
      if (!wanted.is(record)) continue;
      ++used;
      if (best == nullptr || (record.completed() && !best->completed())) best = &record;
    }
    if (best != nullptr) {
      result.push_back(*best);
      result.back().name = cell.plan.name();  // rows are called as the experiment calls them
      continue;
    }
    const auto metrics = tasks::metric_specs(*tasks::make_task(plan::planned_shape(cell.plan)));
    result.push_back(record_of_plan(cell.plan, ""));
    result.back().metrics = training::results_of(metrics, {}, {}, {});
  }
  if (used < there.size())
    into.remark =
        fmt::format("{}: {} records are of no run of {}", folder.string(), there.size() - used, experiment.name);
}

}  // namespace

cli::ReportedExperiment reported_experiment(const Path& file, const Path& folder) {
  const sweep::Experiment experiment = sweep::read_experiment(file);
  cli::ReportedExperiment result{.file = experiment.file,
                                 .folder = folder.empty() ? records_folder(experiment) : folder,
                                 .title = experiment.title,
                                 .notes = experiment.notes,
                                 .published = experiment.published,
                                 .published_name = experiment.published_name,
                                 .average_over = experiment.average_over};
  if (experiment.bench.is_array()) result.measurements = static_cast<int64_t>(experiment.bench.size());
  else add_records(experiment, result);
  return result;
}

}  // namespace xformer::engine
