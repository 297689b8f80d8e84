#include "sweep/cells.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"
#include "core/option_names.h"
#include "sweep/cell_record.h"
#include "sweep/names.h"

namespace xformer::sweep {

namespace {

constexpr size_t kHashDigits = 16;

RunPlan plan_of(const Ask& ask, int64_t seed) {
  plan::PlanRequest request;
  request.task = ask.task;
  request.model = ask.model;
  request.protocol = ask.protocol;
  request.seed = seed;
  request.steps = ask.steps;
  request.length = ask.length;
  request.layers.push_back({"the experiment", ask.set});
  return plan::resolve_plan(request);
}

// In [0, 1), the same for the same words.
double uniform_of(const std::string& words) {
  const uint64_t bits = std::stoull(sha256(words).substr(0, kHashDigits), nullptr, 16);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Json drawn(const Axis& axis, double u) {
  if (!axis.values.empty()) return axis.values[static_cast<size_t>(u * static_cast<double>(axis.values.size()))];
  const double value = axis.logarithmic ? axis.low * std::pow(axis.high / axis.low, u)
                                        : axis.low + u * (axis.high - axis.low + (axis.whole ? 1 : 0));
  if (axis.whole) return static_cast<int64_t>(std::min(std::floor(value), axis.high));
  return std::stod(fmt::format("{:.3g}", value));  // as people write it
}

// Every combination, the last axis fastest.
std::vector<Json> combinations(const std::vector<Axis>& axes) {
  std::vector<Json> result{Json::object()};
  for (const Axis& axis : axes) {
    std::vector<Json> longer;
    for (const Json& values : result)
      for (const Json& value : axis.values) {
        longer.push_back(values);
        longer.back()[axis.key] = value;
      }
    result = std::move(longer);
  }
  return result;
}

std::vector<Json> trial_values(const Experiment& experiment, const Ask& ask) {
  const Search& search = *experiment.search;
  if (!search.random) {
    std::vector<Json> all = combinations(search.axes);
    XF_CHECK(search.budget == 0 || static_cast<int64_t>(all.size()) <= search.budget, UserError,
             "{}: search: the grid has {} trials, the budget is {}", experiment.file.string(), all.size(),
             search.budget);
    return all;
  }
  std::vector<Json> result;
  for (int64_t trial = 0; trial < search.budget; ++trial) {
    Json values = Json::object();
    for (const Axis& axis : search.axes)
      values[axis.key] = drawn(axis, uniform_of(fmt::format("{}|{}|{}|{}", ask.task, ask.model, axis.key, trial)));
    if (std::find(result.begin(), result.end(), values) == result.end()) result.push_back(values);
  }
  return result;
}

std::string words_of(const Json& values) {
  std::string words;
  for (const auto& [key, value] : values.items()) words += fmt::format(" {}={}", key, value_word(value));
  return words;
}

// What tells an entry from others of its name.
std::string own_words(const Ask& entry, const std::vector<Ask>& entries) {
  const auto same = std::count_if(entries.begin(), entries.end(),
                                  [&](const Ask& one) { return one.task == entry.task && one.model == entry.model; });
  if (same == 1) return "";
  std::string words = words_of(entry.set);
  if (entry.steps > 0) words += fmt::format(" steps={}", entry.steps);
  if (entry.length > 0) words += fmt::format(" length={}", entry.length);
  return words;
}

std::string place_under(std::string name, const RunPlan& plan, const std::string& hash) {
  std::replace(name.begin(), name.end(), '/', '-');
  return fmt::format("{}/{}/{}/{}", plan.task, name, hash, plan.seed);
}

class Expansion {
 public:
  explicit Expansion(const Experiment& experiment) : experiment_(experiment) {}

  std::vector<Cell> run() {
    for (const Ask& task : experiment_.tasks)
      for (const Ask& model : experiment_.models) {
        if (!awaited(task.task, model.model).empty() || experiment_.excluded(task.task, model.model)) continue;
        for (const Json& values : combinations(experiment_.grid))
          for (const int64_t seed : experiment_.seeds) add_run(task, model, values, seed);
      }
    return std::move(cells_);
  }

  [[nodiscard]] std::vector<WaitingRun> waiting() const {
    std::vector<WaitingRun> result;
    for (const Ask& task : experiment_.tasks)
      for (const Ask& model : experiment_.models) {
        const std::vector<std::string> names = awaited(task.task, model.model);
        if (names.empty() || experiment_.excluded(task.task, model.model)) continue;
        for (const Json& values : combinations(experiment_.grid))
          for (const int64_t seed : experiment_.seeds)
            result.push_back({ask_of(task, model, last_stage(values)), seed, names});
      }
    return result;
  }

 private:
  // The names that a task and a model wait for.
  [[nodiscard]] std::vector<std::string> awaited(const std::string& task, const std::string& model) const {
    std::vector<std::string> result;
    const auto add = [&](const std::vector<std::string>& waited_for, const std::string& name) {
      if (is_among(waited_for, name) && !is_among(result, name)) result.push_back(name);
    };
    add(experiment_.waits_for_tasks, task);
    add(experiment_.waits_for_models, model);
    for (const Stage& stage : experiment_.stages) {
      add(experiment_.waits_for_tasks, stage.ask.task);
      add(experiment_.waits_for_models, stage.ask.model);
    }
    return result;
  }
  [[nodiscard]] Ask last_stage(const Json& values) const {
    Ask grid;
    grid.set = values;
    return experiment_.stages.empty() ? grid : experiment_.stages.back().ask.under(grid);
  }

  // Settings of the task belong to it: a stage on another task does not take them.
  [[nodiscard]] Ask ask_of(const Ask& task, const Ask& model, const Ask& last) const {
    const bool other_task = !last.task.empty() && last.task != task.task;
    Ask ask = experiment_.common.under(other_task ? last : task).under(model);
    const std::string task_name = other_task ? last.task : task.task;
    for (const auto& [where, more] : experiment_.cases)
      if (where.holds(task_name, model.model)) ask = ask.under(more);
    return ask.under(last);
  }

  void add_run(const Ask& task, const Ask& model, const Json& values, int64_t seed) {
    std::optional<size_t> before;
    for (size_t i = 0; i + 1 < experiment_.stages.size(); ++i) {
      const Stage& stage = experiment_.stages[i];
      before = add({ask_of(task, model, stage.ask), CellKind::kStage, seed, before, {}, {}}, " (" + stage.name + ")");
    }
    const Ask ask = ask_of(task, model, last_stage(values));
    std::vector<size_t> trials;
    if (experiment_.search) {
      int64_t number = 0;
      for (const Json& tried : trial_values(experiment_, ask)) {
        Ask trial = ask;
        trial.set.update(tried);
        ++number;
        for (const int64_t trial_seed : experiment_.search->seeds)
          trials.push_back(
              add({trial, CellKind::kTrial, trial_seed, {}, {}, tried}, fmt::format(" (trial {})", number)));
      }
    }
    const size_t count = cells_.size();
    add({ask, CellKind::kRun, seed, before, trials, {}},
        own_words(task, experiment_.tasks) + own_words(model, experiment_.models) + words_of(values));
    XF_CHECK(cells_.size() > count, UserError, "{}: {} on {} with seed {} is asked for twice",
             experiment_.file.string(), model.model, ask.task, seed);
  }

  struct Wanted {
    Ask ask;
    CellKind kind;
    int64_t seed;
    std::optional<size_t> before;
    std::vector<size_t> trials;
    Json tried;
  };
  // One cell may come before several, or be a trial for several seeds: it is there once.
  size_t add(Wanted wanted, const std::string& words) {
    Cell cell;
    cell.kind = wanted.kind;
    cell.ask = std::move(wanted.ask);
    cell.seed = wanted.seed;
    cell.before = wanted.before;
    cell.trials = std::move(wanted.trials);
    if (!wanted.tried.is_null()) cell.tried = wanted.tried;
    try {
      Ask asked = cell.ask;
      // Which weights it will begin with nobody knows yet; that it begins with some decides what is allowed.
      if (cell.before) asked.set["training.init_sha256"] = sha256(cells_[*cell.before].id);
      cell.plan = plan_of(asked, cell.seed);
    } catch (const UserError& error) {
      throw UserError(
          fmt::format("{}: {} on {}: {}", experiment_.file.string(), cell.ask.model, cell.ask.task, error.what()));
    }
    std::string hash = cell.plan.hash();
    cell.place = place_of(cell.plan, hash);
    if (!cell.trials.empty()) hash = sha256(experiment_.search->as_written.dump() + hash).substr(0, kHashDigits);
    cell.id = fmt::format("{}-{}", hash, cell.seed);
    cell.label = fmt::format("{}/{}/seed {}{}", cell.plan.task, cell.plan.name(), cell.seed, words);
    for (size_t i = 0; i < cells_.size(); ++i)
      if (cells_[i].id == cell.id) return i;
    cells_.push_back(std::move(cell));
    return cells_.size() - 1;
  }

  const Experiment& experiment_;
  std::vector<Cell> cells_;
};

}  // namespace

std::vector<std::string> Cell::words() const {
  std::vector<std::string> result{"train", "--task", ask.task, "--model", ask.model, "--seed", std::to_string(seed)};
  const auto option = [&](const char* name, const std::string& value) { result.insert(result.end(), {name, value}); };
  if (!ask.protocol.empty()) option("--protocol", ask.protocol);
  if (ask.steps > 0) option("--steps", std::to_string(ask.steps));
  if (ask.length > 0) option("--length", std::to_string(ask.length));
  for (const auto& [key, value] : ask.set.items()) option("--set", fmt::format("{}={}", key, value_word(value)));
  return result;
}

std::string place_of(const RunPlan& plan, const std::string& hash) { return place_under(plan.name(), plan, hash); }

Path place_below(const Path& folder, const RunPlan& plan, const std::string& suffix) {
  const std::string hash = plan.hash();
  const Path now = folder / (place_of(plan, hash) + suffix);
  const Path before = folder / (place_under(plan.model, plan, hash) + suffix);
  return std::filesystem::exists(before) && !std::filesystem::exists(now) ? before : now;
}

std::vector<Cell> expand(const Experiment& experiment) {
  check_names(experiment);
  return Expansion(experiment).run();
}

std::vector<WaitingRun> waiting_runs(const Experiment& experiment) { return Expansion(experiment).waiting(); }

namespace {

// Those with a flag, which come after all they need; places among them are made anew.
std::vector<Cell> kept(const std::vector<Cell>& cells, const std::vector<char>& keep) {
  std::vector<size_t> place(cells.size());
  std::vector<Cell> result;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (keep[i] == 0) continue;
    place[i] = result.size();
    result.push_back(cells[i]);
    if (result.back().before) result.back().before = place[*result.back().before];
    for (size_t& trial : result.back().trials) trial = place[trial];
  }
  return result;
}

// The runs that `wanted` holds for, and what they need.
std::vector<Cell> runs_where(const std::vector<Cell>& cells, const std::function<bool(const Cell&)>& wanted) {
  std::vector<char> needed(cells.size(), 0);
  for (size_t i = cells.size(); i-- > 0;) {
    const Cell& cell = cells[i];
    if (needed[i] == 0 && !(cell.kind == CellKind::kRun && wanted(cell))) continue;
    needed[i] = 1;
    if (cell.before) needed[*cell.before] = 1;
    for (const size_t trial : cell.trials) needed[trial] = 1;
  }
  return kept(cells, needed);
}

}  // namespace

std::vector<Cell> only(const std::vector<Cell>& cells, const std::string& pattern, const std::string& option) {
  std::vector<Cell> result = runs_where(
      cells, [&](const Cell& run) { return run.id == pattern || matches_pattern("*" + pattern + "*", run.label); });
  if (result.empty()) {
    std::vector<std::string> labels;
    for (const Cell& cell : cells)
      if (cell.kind == CellKind::kRun) labels.push_back(cell.label);
    throw UserError(fmt::format("{}: '{}' fits no cell; there are {}", option, pattern, first_names(labels)));
  }
  return result;
}

std::vector<Cell> unrecorded(const std::vector<Cell>& cells, const Path& records) {
  return runs_where(cells,
                    [&](const Cell& run) { return !run.trials.empty() || !completed_record(records / run.place); });
}

std::vector<Cell> without(const std::vector<Cell>& cells, const std::set<std::string>& ids) {
  std::vector<char> keep(cells.size(), 1);
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    const bool needs_none =
        (!cell.before || keep[*cell.before] != 0) &&
        std::all_of(cell.trials.begin(), cell.trials.end(), [&](size_t one) { return keep[one] != 0; });
    keep[i] = needs_none && !ids.contains(cell.id) ? 1 : 0;
  }
  return kept(cells, keep);
}

Cell with_values(const Cell& run, const Json& values) {
  Cell result = run;
  result.ask.set.update(values);
  result.plan = plan_of(result.ask, result.seed);
  result.place = place_of(result.plan, result.plan.hash());
  return result;
}

}  // namespace xformer::sweep
