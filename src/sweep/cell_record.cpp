#include "sweep/cell_record.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "core/text.h"
#include "training/record.h"

namespace xformer::sweep {

namespace {

Json record_in(const Path& run_folder) {
  std::error_code ignored;
  const Path path = run_folder / "record.json";
  if (!std::filesystem::is_regular_file(path, ignored)) return Json();
  return Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
}

}  // namespace

Verdict judge(const Cell& cell, const Ending& ending, bool system_out_of_memory, const Path& run_folder,
              const Path& output, const CellHistory& history, int64_t retries) {
  const auto code = static_cast<ExitCode>(ending.exit_code);
  const bool outside =
      ending.signal == SIGKILL || ending.signal == SIGTERM || ending.signal == SIGINT || ending.signal == SIGHUP;
  const Json record = record_in(run_folder);
  const bool recorded = record.is_object() && record.contains("status");
  Verdict verdict;
  if (ending.signal == 0 && code == ExitCode::kDone && completed_record(run_folder)) {
    verdict.status = "completed";
    return verdict;
  }
  if (ending.signal == 0 && code == ExitCode::kInterrupted) {
    verdict.status = "interrupted";
    return verdict;
  }
  verdict.message = ending.signal == 0 && recorded && record["status"] != "completed" ? record.value("message", "")
                                                                                      : last_words(output);
  const bool out_of_memory =
      (ending.signal == SIGKILL && system_out_of_memory) ||
      (ending.signal == 0 && code == ExitCode::kResource && recorded && record["status"] == "out-of-memory");
  if (out_of_memory) {
    verdict.status = "out-of-memory";
    if (ending.signal != 0) verdict.message = "the system ended it for want of memory";
    const auto option = [&](const char* key) { return cell.plan.options.values[key].get<int64_t>(); };
    int64_t now = history.micro_batch > 0 ? history.micro_batch : option("training.micro_batch");
    if (now == 0) now = option("training.batch");
    verdict.give_up = now <= 1;
    verdict.next_micro_batch = (now + 1) / 2;
    return verdict;
  }
  if (outside) {
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
  verdict.give_up = (ending.signal == 0 && code == ExitCode::kUser) || history.failures + 1 > retries;
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

std::optional<Json> completed_record(const Path& run_folder) {
  Json record = record_in(run_folder);
  if (!record.is_object() || record.value("status", "") != "completed") return std::nullopt;
  return record;
}

Json record_of_failure(const Cell& cell, const Path& run_folder, const std::string& status,
                       const std::string& message) {
  Json record = record_in(run_folder);
  if (!record.is_object() || !record.contains("schema_version") || record.value("status", "completed") == "completed") {
    training::RunFacts facts;
    facts.status = status;
    facts.message = message;
    training::RunOptions options;
    options.command = "xformer";
    for (const std::string& word : cell.words()) options.command += " " + word;
    record = training::make_record(cell.plan, options, facts);
    record["peak_process_bytes"] = Json();  // that would be the sweep's own
  }
  record["status"] = status;
  record["message"] = message;
  return record;
}

Chosen choose(const Search& search, const std::vector<const Cell*>& trials,
              const std::vector<std::optional<Json>>& records) {
  struct Tried {
    Json values;
    double sum = 0;
    size_t seeds = 0;
    bool all = true;
  };
  std::vector<Tried> tried;
  Chosen result;
  Json shown = Json::array();
  bool smaller_is_better = false;
  for (size_t i = 0; i < trials.size(); ++i) {
    const Json& values = trials[i]->tried;
    auto found = std::find_if(tried.begin(), tried.end(), [&](const Tried& one) { return one.values == values; });
    if (found == tried.end()) found = tried.insert(tried.end(), {values});
    Json score;
    if (records[i]) {
      const Json& selection = (*records[i])["selection"];
      XF_CHECK(selection.value("split", "") == "dev", UserError,
               "the search of {}: this protocol selects on the test split, a search must not; give it a dev split",
               trials[i]->plan.model);
      smaller_is_better = selection["best"].contains("rmse");
      score = selection["best"].value(smaller_is_better ? "rmse" : "accuracy", Json());
    }
    if (score.is_number()) {
      found->sum += score.get<double>();
      ++found->seeds;
    } else {
      found->all = false;
    }
    shown.push_back({{"values", values},
                     {"seed", trials[i]->seed},
                     {"status", records[i] ? "completed" : "failed"},
                     {"dev", score}});
  }
  const Tried* best = nullptr;
  const auto mean = [](const Tried& one) { return one.sum / static_cast<double>(one.seeds); };
  for (const Tried& one : tried) {
    if (!one.all) continue;
    if (best == nullptr || (smaller_is_better ? mean(one) < mean(*best) : mean(one) > mean(*best))) best = &one;
  }
  XF_CHECK(best != nullptr, UserError, "the search of {} on {}: none of its trials completed with every seed",
           trials.front()->plan.model, trials.front()->plan.task);
  result.values = best->values;
  result.search = {{"space", search.as_written}, {"rule", "best on dev"}, {"trials", shown}, {"chosen", best->values}};
  return result;
}

}  // namespace xformer::sweep
