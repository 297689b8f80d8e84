#include "cli/experiment_records.h"

#include <algorithm>
#include <set>

#include "sweep/cells.h"

namespace xformer::cli {

namespace {

using reporting::RunRecord;

// What a sweep may choose for a run that asks for the rest.
std::set<std::string> free_keys(const sweep::Experiment& experiment) {
  std::set<std::string> keys{"training.micro_batch", "training.init_sha256"};
  if (experiment.search)
    for (const sweep::Axis& axis : experiment.search->axes) keys.insert(axis.key);
  return keys;
}

// Older programs knew fewer options.
bool answers(const RunRecord& record, const RunPlan& plan, const std::set<std::string>& free) {
  if (record.task != plan.task || record.model != plan.model || record.protocol != plan.protocol ||
      record.seed != plan.seed)
    return false;
  const auto& values = plan.options.values;
  return std::all_of(values.items().begin(), values.items().end(), [&](const auto& value) {
    return free.contains(value.key()) || !record.plan.contains(value.key()) ||
           record.plan[value.key()] == value.value();
  });
}

}  // namespace

Path records_folder(const sweep::Experiment& experiment) {
  const Path kept = Path("results/runs") / experiment.name;
  return std::filesystem::exists(kept) ? kept : Path("runs") / experiment.name;
}

std::vector<RunRecord> experiment_records(const sweep::Experiment& experiment, const Path& folder,
                                          const std::function<void(const std::string&)>& say) {
  std::vector<RunRecord> there;
  if (std::filesystem::exists(folder)) there = reporting::read_run_records({folder.string()});
  const std::set<std::string> free = free_keys(experiment);
  std::vector<RunRecord> result;
  size_t used = 0;
  for (const sweep::Cell& cell : sweep::expand(experiment)) {
    if (cell.kind != sweep::CellKind::kRun) continue;
    const RunRecord* best = nullptr;
    for (const RunRecord& record : there) {
      if (!answers(record, cell.plan, free)) continue;
      ++used;
      if (best == nullptr || (record.status == "completed" && best->status != "completed")) best = &record;
    }
    if (best != nullptr) {
      result.push_back(*best);
      continue;
    }
    RunRecord& none = result.emplace_back();
    none.task = cell.plan.task;
    none.model = cell.plan.model;
    none.protocol = cell.plan.protocol;
    none.seed = cell.seed;
    none.plan = cell.plan.to_json();
  }
  if (used < there.size())
    say(fmt::format("{}: {} records are of no run of {}", folder.string(), there.size() - used, experiment.name));
  return result;
}

}  // namespace xformer::cli
