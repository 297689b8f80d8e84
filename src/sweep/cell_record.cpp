#include "sweep/cell_record.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "core/text.h"

namespace xformer::sweep {

Verdict judge(const Cell& cell, const Ending& ending, bool system_out_of_memory, const Path& run_folder,
              const Path& output, const CellHistory& history, int64_t retries) {
  const auto code = static_cast<ExitCode>(ending.exit_code);
  const RunRecord record = read_run_record(run_folder / "record.json");
  Verdict verdict;
  if (ending.signal == 0 && code == ExitCode::kDone && record.completed()) {
    verdict.status = "completed";
    return verdict;
  }
  if (ending.signal == 0 && code == ExitCode::kInterrupted) {
    verdict.status = "interrupted";
    return verdict;
  }
  // What was stopped before left a record that knows nothing of this attempt.
  const bool stale = record.status == "interrupted" || record.status == "stopped";
  const bool recorded = ending.signal == 0 && !record.status.empty() && !stale;
  verdict.message = recorded && !record.completed() ? record.message : last_words(output);
  const bool out_of_memory = (ending.signal == SIGKILL && system_out_of_memory) ||
                             (recorded && code == ExitCode::kResource && record.status == "out-of-memory");
  if (out_of_memory) {
    verdict.status = "out-of-memory";
    if (ending.signal != 0) verdict.message = "the system ended it for want of memory";
    const Json& options = cell.plan.options.values;
    const auto option = [&](const char* key) { return options[key].get<int64_t>(); };
    int64_t now = history.micro_batch > 0 ? history.micro_batch : option("training.micro_batch");
    if (now == 0) now = option("training.batch");
    // A batch norm over a part of the batch would be another model.
    verdict.give_up = now <= 1 || options.value("model.norm", "") == "batch";
    if (!verdict.give_up) verdict.next_micro_batch = (now + 1) / 2;
    return verdict;
  }
  if (ended_from_outside(ending)) {
    verdict.status = "killed";
    verdict.message = fmt::format("ended by signal {} from outside", ending.signal);
    verdict.give_up = history.kills + 1 >= kMostKills;
    return verdict;
  }
  if (ending.signal == 0 && code == ExitCode::kDiverged) {
    verdict.status = "diverged";
    verdict.give_up = true;
    return verdict;
  }
  verdict.status = "failed";
  if (ending.signal != 0) verdict.message = fmt::format("crashed by signal {}: {}", ending.signal, verdict.message);
  if (verdict.message.empty()) verdict.message = fmt::format("ended with exit code {}", ending.exit_code);
  const bool lasting = ending.signal == 0 && (code == ExitCode::kUser || code == ExitCode::kData);
  const bool tried_enough = history.failures + 1 > retries;
  // Memory is a matter of the cell, also where it ended before it had a record to say so in.
  const bool memory = verdict.message.starts_with("out of memory");
  verdict.stop_sweep = ending.signal == 0 && code == ExitCode::kResource && tried_enough && !memory;
  verdict.give_up = lasting || (tried_enough && !verdict.stop_sweep);
  return verdict;
}

std::string last_words(const Path& output) {
  std::error_code ignored;
  if (!std::filesystem::exists(output, ignored)) return "";
  const std::string text = read_file(output);
  std::string last;
  for (const std::string_view line : split(text, '\n'))
    if (!trim(line).empty() && !line.starts_with("see `")) last = trim(line);
  return last.starts_with("xformer: ") ? last.substr(std::strlen("xformer: ")) : last;
}

std::optional<RunRecord> completed_record(const Path& run_folder) {
  RunRecord record = read_run_record(run_folder / "record.json");
  return record.completed() ? std::optional(std::move(record)) : std::nullopt;
}

RunRecord record_of_failure(const Cell& cell, const Path& run_folder, const std::string& status,
                            const std::string& message) {
  RunRecord record = read_run_record(run_folder / "record.json");
  if (record.status.empty() || record.completed()) {
    std::string command = "xformer";
    for (const std::string& word : cell.words()) command += " " + word;
    record = record_of_plan(cell.plan, command);
  }
  record.status = status;
  record.message = message;
  return record;
}

Chosen choose(const Search& search, const std::vector<const Cell*>& trials,
              const std::vector<std::optional<RunRecord>>& records) {
  struct Tried {
    Json values;
    double sum = 0;
    size_t seeds = 0;
    bool all = true;
  };
  std::vector<Tried> tried;
  Chosen result;
  Json shown = Json::array();
  Metric metric;
  for (size_t i = 0; i < trials.size(); ++i) {
    const Json& values = trials[i]->tried;
    auto found = std::find_if(tried.begin(), tried.end(), [&](const Tried& one) { return one.values == values; });
    if (found == tried.end()) found = tried.insert(tried.end(), {values});
    std::optional<double> score;
    if (records[i]) {
      XF_CHECK(records[i]->selection && records[i]->selection->split == "dev", UserError,
               "the search of {}: this protocol selects on the test split, a search must not; give it a dev split",
               trials[i]->plan.model);
      if (const MetricResult* const dev = records[i]->headline("dev"); dev != nullptr) {
        metric.spec = dev->spec;
        score = dev->value;
      }
    }
    if (score) {
      found->sum += *score;
      ++found->seeds;
    } else {
      found->all = false;
    }
    shown.push_back({{"values", values},
                     {"seed", trials[i]->seed},
                     {"status", records[i] ? "completed" : "failed"},
                     {"dev", score ? Json(*score) : Json()}});
  }
  const Tried* best = nullptr;
  const auto mean = [](const Tried& one) { return one.sum / static_cast<double>(one.seeds); };
  for (const Tried& one : tried) {
    if (!one.all) continue;
    metric.value = mean(one);
    if (best == nullptr || metric.better_than(mean(*best))) best = &one;
  }
  XF_CHECK(best != nullptr, UserError, "the search of {} on {}: none of its trials completed with every seed",
           trials.front()->plan.model, trials.front()->plan.task);
  result.values = best->values;
  result.search = {{"space", search.as_written}, {"rule", "best on dev"}, {"trials", shown}, {"chosen", best->values}};
  return result;
}

Chosen choose(const Search& search, const std::vector<Cell>& cells, const Cell& run,
              const std::vector<std::optional<RunRecord>>& records) {
  std::vector<const Cell*> trials;
  std::vector<std::optional<RunRecord>> of_trials;
  for (const size_t trial : run.trials) {
    trials.push_back(&cells[trial]);
    of_trials.push_back(records[trial]);
  }
  return choose(search, trials, of_trials);
}

void keep_search(const Path& record, const Json& search) {
  Json json = Json::parse(read_file(record), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("search", Json()) == search) return;
  json["search"] = search;
  write_file_atomically(record, json.dump(2) + "\n");
}

}  // namespace xformer::sweep
