#include "engine/experiment_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/datasets.h"
#include "engine/bench_experiment.h"
#include "reporting/record_selection.h"
#include "reporting/result_table.h"
#include "reporting/run_records.h"
#include "sweep/cells.h"
#include "training/record.h"

namespace xformer::engine {

namespace {

const std::set<std::string> kFreeKeys{"training.micro_batch"};

// What a sweep may choose for a run that asks for the rest.
std::set<std::string> searched_keys(const sweep::Experiment& experiment) {
  std::set<std::string> keys = kFreeKeys;
  if (experiment.search)
    for (const sweep::Axis& axis : experiment.search->axes) keys.insert(axis.key);
  return keys;
}

// What a record of a cell may say: where epochs are counted it has no number of steps, a CPU has another precision than
// the protocol wishes for, and with which weights a stage begins no plan knows before the one before it has ended.
class Wanted {
 public:
  Wanted(const RunPlan& plan, std::set<std::string> free) : plan_(plan), on_cpu_(plan), free_(std::move(free)) {
    const RunRecord record = record_of_plan(plan, "");
    from_scratch_ = record.from_scratch();
    free_.insert("training.init_sha256");
    for (const auto& [key, origin] : plan.options.origins)
      if (!record.plan.contains(key)) free_.insert(key);
    plan::suit_device(on_cpu_, /*on_cuda=*/false);
  }
  [[nodiscard]] bool is(const RunRecord& record) const {
    return record.seed == plan_.seed && record.from_scratch() == from_scratch_ &&
           (plan_differences(record.plan, plan_, free_).empty() ||
            plan_differences(record.plan, on_cpu_, free_).empty());
  }

 private:
  RunPlan plan_, on_cpu_;
  std::set<std::string> free_;
  bool from_scratch_ = true;
};

// Trials lie beside the runs and have their plans, and so may what an earlier form of the search chose.
bool is_of_search(const RunRecord& record, const sweep::Search& search) {
  return record.search.is_object() && record.search.value("space", Json()) == search.as_written;
}

Path records_folder(const sweep::Experiment& experiment) {
  const Path kept = sweep::usual_folder("results/runs", experiment);
  return std::filesystem::exists(kept) ? kept : sweep::usual_folder("runs", experiment);
}

// What the task of a cell is judged by, the headline first.
std::vector<MetricSpec> metrics_of(const sweep::Cell& cell) {
  return tasks::metric_specs(*tasks::make_task(plan::planned_shape(cell.plan)));
}

// The headline of its task stands first in a record, as the task shows it; a run without it has no score.
void judge(const MetricSpec& headline, RunRecord& record) {
  for (const std::string split : {"test", "dev"}) {
    MetricResult first{headline, split, {}};
    const auto found = std::find_if(record.metrics.begin(), record.metrics.end(), [&](const MetricResult& one) {
      return one.split == split && one.spec.name == headline.name;
    });
    if (found != record.metrics.end()) {
      first.value = found->value, first.chance = found->chance;
      record.metrics.erase(found);
    }
    record.metrics.insert(record.metrics.begin(), std::move(first));
  }
}

// A run that is wanted and not there: what its task is judged by, and its options but for those that only the sweep or
// the device will choose.
RunRecord missing_record(const sweep::Cell& cell, const std::set<std::string>& free) {
  RunRecord record = record_of_plan(cell.plan, "");
  record.metrics = training::results_of(metrics_of(cell), {}, {}, {});
  for (const data::Shift& shift : plan::shifts_of(cell.plan))
    record.metrics.push_back({training::change_metric(record.headline("test")->spec, shift.name), "test", {}});
  record.plan_hash.clear();
  RunPlan on_cpu = cell.plan;
  plan::suit_device(on_cpu, /*on_cuda=*/false);
  for (const auto& [key, value] : on_cpu.options.values.items())
    if (free.contains(key) || cell.plan.options.values[key] != value) record.plan.erase(key);
  return record;
}

// The record of a run of the experiment, called and judged as the experiment does. Options that came after it are at
// the value that they always had.
RunRecord found_record(const sweep::Cell& cell, const RunRecord& found) {
  RunRecord record = found;
  record.name = cell.plan.name();
  const Json wanted = record_of_plan(cell.plan, "").plan;
  for (const auto& [key, value] : wanted.items())
    if (!record.plan.contains(key)) record.plan[key] = value;
  // Where only its files say what a task is, the record knows best by what it is judged.
  if (!data::find_dataset(cell.plan.task).shape_is_likely) judge(metrics_of(cell).front(), record);
  return record;
}

RunRecord waiting_record(const sweep::WaitingRun& run) {
  RunRecord record;
  record.status = reporting::kWaiting;
  record.message = fmt::format("{}", fmt::join(run.names, ", "));
  record.task = run.ask.task;
  record.model = record.name = run.ask.model;
  record.protocol = run.ask.protocol;
  record.seed = run.seed;
  record.plan = run.ask.set;
  if (run.ask.length > 0) record.plan["data.length"] = run.ask.length;
  return record;
}

void add_records(const sweep::Experiment& experiment, cli::ReportedExperiment& into) {
  const std::vector<RunRecord> there = reporting::find_run_records(into.folder, into.remarks);
  const std::set<std::string> searched = searched_keys(experiment);
  struct Placed {
    size_t task, model;  // in the experiment's lists
    RunRecord record;
  };
  std::vector<Placed> placed;
  const auto add = [&](const sweep::Ask& ask, RunRecord record) {
    const auto place = [](const std::vector<sweep::Ask>& all, std::string sweep::Ask::*name, const sweep::Ask& one) {
      return static_cast<size_t>(
          std::find_if(all.begin(), all.end(), [&](const sweep::Ask& other) { return other.*name == one.*name; }) -
          all.begin());
    };
    placed.push_back({place(experiment.tasks, &sweep::Ask::task, ask),
                      place(experiment.models, &sweep::Ask::model, ask), std::move(record)});
  };
  std::set<const RunRecord*> used;
  std::map<std::string, std::string> families;  // of models, by what the experiment calls them
  for (const sweep::Cell& cell : sweep::expand(experiment)) {
    const Wanted wanted(cell.plan, cell.trials.empty() ? kFreeKeys : searched);
    const RunRecord* best = nullptr;
    for (const RunRecord& record : there) {
      if (!wanted.is(record) || (!cell.trials.empty() && !is_of_search(record, *experiment.search))) continue;
      used.insert(&record);
      if (best == nullptr || reporting::counts_before(record, *best)) best = &record;
    }
    if (cell.kind != sweep::CellKind::kRun) continue;  // no table shows it, but it is the experiment's
    families.emplace(cell.ask.model, cell.plan.family);
    add(cell.ask, best != nullptr ? found_record(cell, *best) : missing_record(cell, searched));
  }
  for (const sweep::WaitingRun& run : sweep::waiting_runs(experiment)) {
    add(run.ask, waiting_record(run));
    if (const auto known = families.find(run.ask.model); known != families.end())
      placed.back().record.family = known->second;
  }
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& one, const Placed& other) {
    return std::pair(one.task, one.model) < std::pair(other.task, other.model);
  });
  for (Placed& one : placed) into.records.push_back(std::move(one.record));
  if (used.size() < there.size())
    into.remarks.push_back(fmt::format("{}: {} records are of no run of {}", into.folder.string(),
                                       there.size() - used.size(), experiment.name));
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
                                 .average_over = experiment.average_over,
                                 .metric = experiment.metric,
                                 .columns = experiment.columns};
  if (experiment.bench.is_array()) result.measurements = bench_reports(experiment, result.folder);
  else add_records(experiment, result);
  return result;
}

}  // namespace xformer::engine
