#include "engine/sweep_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/printed.h"
#include "cli/progress.h"
#include "core/text.h"
#include "engine/dry_run.h"
#include "engine/plan_arguments.h"

namespace xformer::engine {

CellHistories histories_in(const Path& out) {
  if (!std::filesystem::exists(out / "journal.jsonl")) return {};
  return sweep::Journal(out / "journal.jsonl").histories();
}

std::vector<CellStanding> standings_of(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
                                       const sweep::SweepOptions& options, const CellHistories& histories) {
  std::vector<CellStanding> result(cells.size());
  std::vector<std::optional<RunRecord>> records(cells.size());
  const auto standing_of = [&](size_t i) -> CellStanding {
    sweep::Cell cell = cells[i];
    const auto found = histories.find(cell.id);
    const sweep::CellHistory history = found == histories.end() ? sweep::CellHistory{} : found->second;
    if (!history.gave_up.empty() && !options.retry_failed) return {CellStand::kGivenUp, history.gave_up, {}};
    if (cell.before && result[*cell.before].kind == CellStand::kGivenUp) return {CellStand::kGivenUp, "failed", {}};
    if (std::any_of(cell.trials.begin(), cell.trials.end(), [&](size_t trial) { return !result[trial].ended(); }))
      return {};
    Json chosen;
    if (!cell.trials.empty()) {
      try {
        chosen = sweep::choose(*experiment.search, cells, cell, records).values;
      } catch (const UserError&) {
        return {CellStand::kGivenUp, "failed", {}};
      }
      cell = sweep::with_values(cell, chosen);
    }
    const Path folder = sweep::run_folder(options.out, cell, history.micro_batch);
    records[i] = sweep::completed_record(folder);
    if (records[i]) return {CellStand::kCompleted, "completed", chosen};
    if (history.attempts == 0 || !std::filesystem::exists(folder)) return {CellStand::kToDo, "to do", chosen};
    const std::string attempts = fmt::format("{} attempt{}", history.attempts, history.attempts == 1 ? "" : "s");
    return {CellStand::kBegun, "begun, " + attempts, chosen};
  };
  for (size_t i = 0; i < cells.size(); ++i) result[i] = standing_of(i);
  return result;
}

std::vector<const sweep::Cell*> incomplete(const std::vector<sweep::Cell>& cells,
                                           const std::vector<CellStanding>& standings) {
  std::vector<const sweep::Cell*> result;
  for (size_t i = 0; i < cells.size(); ++i)
    if (standings[i].kind != CellStand::kCompleted) result.push_back(&cells[i]);
  return result;
}

data::DataLocation location_of(const RunPlan& plan, const sweep::SweepOptions& options) {
  const std::vector<std::string> words = options.data(plan);
  DataArguments arguments;
  if (words.size() == 2) arguments.folder = words[1];
  return arguments.location(plan.task);
}

SweepData::SweepData(const std::vector<const sweep::Cell*>& cells, const sweep::SweepOptions& options,
                     const ProgressCallback& progress, bool generated_too) {
  std::map<std::string, std::string> cause_of;  // by key
  for (const sweep::Cell* const one : cells) {
    const sweep::Cell& cell = *one;
    const data::DataLocation location = location_of(cell.plan, options);
    check_generator_options(cell.plan, location);
    const bool generated = data::find_dataset(cell.plan.task).generated && location.folder.empty();
    if (generated && !generated_too && !training::counts_epochs(cell.plan)) continue;
    const std::string key =
        fmt::format("{} {} {}", cell.plan.task, cell.plan.group("data").dump(), location.folder.string());
    key_of_[cell.id] = key;
    if (!sources_.contains(key)) {
      try {
        sources_[key] = training::open_data(cell.plan, location, progress, options.stop_requested);
      } catch (const DataError& error) {
        sources_[key] = nullptr;
        cause_of[key] = error.what();
      }
    }
    if (sources_[key] != nullptr) continue;
    lacking_.insert(cell.id);
    ++causes_[cause_of[key]];
  }
}

const data::DataSource* SweepData::of(const sweep::Cell& cell) const {
  const auto key = key_of_.find(cell.id);
  return key == key_of_.end() ? nullptr : sources_.at(key->second).get();
}

std::string SweepData::problems() const {
  std::string text;
  for (const auto& [cause, count] : causes_)
    text += fmt::format("\n  {} cell{}: {}", count, count == 1 ? "" : "s", cause);
  return text;
}

namespace {

// Seconds and bytes of cells, as far as they are known.
class CellCosts {
 public:
  CellCosts(const sweep::SweepOptions& options, const SweepData& data, const measure::BenchRun* probe)
      : data_(data), probe_(probe) {
    records_.learn_folder(options.out);
    if (!options.record_to.empty()) records_.learn_folder(options.record_to);
  }

  std::optional<sweep::Estimate> of(const sweep::Cell& cell) {
    const auto [place, fresh] = known_.try_emplace(cell.plan.hash());
    if (fresh) place->second = look(cell);
    return place->second;
  }

 private:
  std::optional<sweep::Estimate> look(const sweep::Cell& cell) const {
    if (auto found = records_.of(cell.plan)) return found;
    const data::DataSource* const source = data_.of(cell);
    const bool unknown = source == nullptr && (data_.lacking().contains(cell.id) || training::counts_epochs(cell.plan));
    if (unknown) return std::nullopt;
    const training::Course course =
        source != nullptr ? training::course_of(cell.plan, *source) : training::planned_course(cell.plan);
    const data::DataShape shape = source != nullptr ? source->info().shape : plan::planned_shape(cell.plan);
    const int64_t batch = cell.plan.options.values["training.batch"];
    if (probe_ != nullptr && source != nullptr) return probed(cell.plan, shape, *source, course, batch);
    const double flops =
        plan::build_model(cell.plan, shape)->cost(1, plan::padded_len(cell.plan, shape)).flops_executed;
    return records_.by_operations(cell.plan, flops, static_cast<double>(course.steps * batch));
  }

  [[nodiscard]] std::optional<sweep::Estimate> probed(const RunPlan& plan, const data::DataShape& shape,
                                                      const data::DataSource& source, const training::Course& course,
                                                      int64_t batch) const {
    const int64_t rows = std::min(batch, source.size(data::Split::kTrain));
    probe_->progress(fmt::format("five steps of {} on {}", plan.name(), plan.task), -1);
    const measure::StepCost cost = measure::probe_steps(plan, shape, rows, *probe_);
    const auto bytes = static_cast<double>(cost.memory_bytes);
    if (cost.status != "ok") return sweep::Estimate{0, bytes, cost.status};
    return sweep::Estimate{expected_seconds(plan, course, source, rows, cost.step_seconds), bytes, "five steps"};
  }

  const SweepData& data_;
  const measure::BenchRun* probe_;
  sweep::Estimator records_;
  std::map<std::string, std::optional<sweep::Estimate>> known_;  // by hash
};

// Of a task, or of all.
struct Sum {
  int64_t cells = 0, left = 0, unknown = 0, lacking = 0;
  double seconds = 0, bytes = 0;

  void add(const CellStanding& state, const std::optional<sweep::Estimate>& estimate, bool lacks) {
    ++cells;
    if (state.ended()) return;
    ++left;
    if (lacks) ++lacking;
    if (!estimate) {
      ++unknown;
      return;
    }
    seconds += estimate->seconds;
    bytes = std::max(bytes, estimate->peak_bytes);
  }
  [[nodiscard]] std::string time(int64_t jobs) const {
    if (left == 0) return "0s";
    if (unknown == left) return "?";
    return (unknown > 0 ? "more than " : "") + format_duration(seconds / static_cast<double>(jobs));
  }
  [[nodiscard]] std::string memory() const { return bytes > 0 ? format_bytes(static_cast<uint64_t>(bytes)) : "?"; }
};

}  // namespace

void print_sweep_plan(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
                      const std::vector<CellStanding>& standings, const sweep::SweepOptions& options,
                      const SweepData& data, const measure::BenchRun* probe) {
  CellCosts costs(options, data, probe);
  Sum all;
  std::vector<std::pair<std::string, Sum>> tasks;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < cells.size(); ++i) {
    const sweep::Cell& cell = cells[i];
    const CellStanding& state = standings[i];
    const auto estimate = costs.of(cell);
    const bool lacks = data.lacking().contains(cell.id);
    auto task = std::find_if(tasks.begin(), tasks.end(), [&](const auto& one) { return one.first == cell.plan.task; });
    if (task == tasks.end()) task = tasks.insert(tasks.end(), {cell.plan.task, {}});
    for (Sum* const sum : {&all, &task->second}) sum->add(state, estimate, lacks);
    rows.push_back(
        {cell.label, cell.plan.protocol, lacks ? state.words + ", no data" : state.words,
         estimate ? format_duration(estimate->seconds) : "?",
         estimate && estimate->peak_bytes > 0 ? format_bytes(static_cast<uint64_t>(estimate->peak_bytes)) : "?",
         estimate ? estimate->from : ""});
  }
  fmt::print("{}: {} cells, {} to run, {} at a time\n", experiment.title, all.cells, all.left, options.jobs);
  fmt::print("time left {}, at most {} for a cell\n", all.time(options.jobs), all.memory());
  if (all.unknown > 0)
    fmt::print("of {} cells nothing is known: no earlier record tells{}\n", all.unknown,
               probe == nullptr ? "; --probe takes five steps of each model on each task" : "");
  std::vector<std::vector<std::string>> by_task;
  for (const auto& [task, sum] : tasks)
    by_task.push_back({task, std::to_string(sum.cells), std::to_string(sum.left), sum.time(options.jobs), sum.memory(),
                       sum.lacking > 0 ? "no data" : ""});
  fmt::print("\n");
  cli::print_table({"task", "cells", "to run", "time", "memory", ""}, by_task, /*markdown=*/false);
  fmt::print("\n");
  cli::print_table({"cell", "protocol", "state", "time", "memory", "as"}, rows, /*markdown=*/false);
}

}  // namespace xformer::engine
