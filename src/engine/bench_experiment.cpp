#include "engine/bench_experiment.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "cli/command.h"
#include "cli/progress.h"
#include "core/text.h"
#include "engine/signals.h"
#include "sweep/cell_record.h"

namespace xformer::engine {

using namespace cli;

namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
constexpr const char* kStopped = "stopped; the same command goes on with what is not measured yet";

Path with_number(const Path& folder, size_t place, const char* ending) {
  return folder / fmt::format("bench-{}{}", place + 1, ending);
}

std::string command_of(const Json& report) {
  const auto said = report.find("command");
  return said != report.end() && said->is_string() ? said->get<std::string>() : "";
}

// Whether a report's command is that of the experiment. What a sweep adds, where it computes and where it writes, makes
// no other measurement.
bool is_command(const std::string& said, const Json& wanted) {
  std::vector<std::string> words{"bench"};
  for (const Json& word : wanted) words.push_back(word);
  const std::string own = recorded_form(words);
  if (said == own) return true;
  if (!said.starts_with(own + " ")) return false;
  static const std::vector<std::string> kAdded{"--device",  "--kernels",  "--deterministic", "--cuda-graph",
                                               "--threads", "--markdown", "--json"};
  const std::vector<std::string_view> rest = split(std::string_view(said).substr(own.size() + 1), ' ');
  for (size_t i = 0; i < rest.size(); i += 2)
    if (std::find(kAdded.begin(), kAdded.end(), rest[i]) == kAdded.end()) return false;
  return true;
}

// What is measured in one of the folders is put, under its number now, into those that lack it. All is read first:
// under that number another may lie.
void share_reports(const sweep::Experiment& experiment, const std::vector<Path>& folders) {
  struct Texts {
    std::string table, report;
  };
  std::map<size_t, Texts> measured;
  std::vector<std::pair<Path, size_t>> lacking;
  for (const Path& folder : folders) {
    const std::vector<Path> reports = bench_reports(experiment, folder);
    for (size_t i = 0; i < reports.size(); ++i) {
      if (reports[i] != with_number(folder, i, ".json")) lacking.emplace_back(folder, i);
      if (reports[i].empty() || measured.contains(i)) continue;
      const Path table = Path(reports[i]).replace_extension(".md");
      measured[i] = {std::filesystem::exists(table) ? read_file(table) : "", read_file(reports[i])};
    }
  }
  for (const auto& [folder, place] : lacking) {
    const auto found = measured.find(place);
    if (found == measured.end()) continue;
    // The table comes first: where the report is, all is.
    if (!found->second.table.empty()) write_file_atomically(with_number(folder, place, ".md"), found->second.table);
    write_file_atomically(with_number(folder, place, ".json"), found->second.report);
  }
}

// Waits for another sweep that measures it.
FileLock claimed(const Path& path) {
  for (;;) {
    if (std::optional<FileLock> claim = FileLock::try_lock(path)) return std::move(*claim);
    XF_CHECK(!stop_signal_came(), Interrupted, "{}", kStopped);
    std::this_thread::sleep_for(kTick);
  }
}

// One command; its report is there afterwards.
void measure(const std::vector<std::string>& command, const Path& log, const FileLock& claim, ProgressLine& line,
             const std::string& what) {
  sweep::CellProcess process(command, {}, log, claim.descriptor());
  const auto start = std::chrono::steady_clock::now();
  const int64_t memory_kills = sweep::out_of_memory_kills();
  bool told = false;
  std::optional<sweep::Ending> ending;
  while (!(ending = process.ended())) {
    if (stop_signal_came() && !told) {
      process.send(SIGTERM);
      told = true;
    }
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    line.update(fmt::format("{}  {}", what, format_duration(seconds)), 0);
    std::this_thread::sleep_for(kTick);
  }
  XF_CHECK(!told, Interrupted, "{}", kStopped);
  const bool out_of_memory = ending->signal == SIGKILL && sweep::out_of_memory_kills() > memory_kills;
  XF_CHECK(!out_of_memory, ResourceError, "{}: the system ended it for want of memory", what);
  XF_CHECK(!sweep::ended_from_outside(*ending), ResourceError,
           "{}: ended by signal {} from outside, by a person or for want of memory; the same command goes on", what,
           ending->signal);
  XF_CHECK(ending->signal == 0, InternalError, "{}: ended by signal {}", what, ending->signal);
  if (ending->exit_code != 0)
    throw Error(static_cast<ExitCode>(ending->exit_code), fmt::format("{}: {}", what, sweep::last_words(log)));
}

}  // namespace

std::vector<Path> bench_reports(const sweep::Experiment& experiment, const Path& folder) {
  std::map<Path, Json> there;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const Path& file = entry.path();
    if (!file.filename().string().starts_with("bench-") || file.extension() != ".json") continue;
    Json report = Json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
    if (report.is_object()) there.emplace(file, std::move(report));
  }
  std::vector<Path> result(experiment.bench.size());
  const auto take = [&](size_t place, const Path& file) {
    result[place] = file;
    there.erase(file);
  };
  for (size_t i = 0; i < result.size(); ++i) {
    const auto found = there.find(with_number(folder, i, ".json"));
    if (found == there.end()) continue;
    const std::string said = command_of(found->second);
    if (said.empty() || is_command(said, experiment.bench[i])) take(i, with_number(folder, i, ".json"));
  }
  for (size_t i = 0; i < result.size(); ++i) {
    if (!result[i].empty()) continue;
    const auto found = std::find_if(there.begin(), there.end(), [&](const auto& one) {
      return is_command(command_of(one.second), experiment.bench[i]);
    });
    if (found != there.end()) take(i, Path(found->first));
  }
  return result;
}

void run_bench_experiment(const sweep::Experiment& experiment, const BenchPlaces& places) {
  std::vector<Path> folders{places.out};
  if (!places.record_to.empty()) folders.insert(folders.begin(), places.record_to);
  for (const Path& folder : folders) make_folders(folder);
  catch_stop_signals();
  share_reports(experiment, folders);
  for (size_t i = 0; i < experiment.bench.size(); ++i) {
    ProgressLine line(terminal_options(STDERR_FILENO));
    const FileLock claim = claimed(with_number(places.out, i, ".claim"));
    const std::string what = fmt::format("{}, {} of {}", experiment.title, i + 1, experiment.bench.size());
    if (const Path report = bench_reports(experiment, places.out)[i]; !report.empty()) {
      line.print(fmt::format("{}: measured before ({})", what, report.string()));
      continue;
    }
    for (const Path& folder : folders)
      if (const Path other = with_number(folder, i, ".json"); std::filesystem::exists(other))
        line.print(fmt::format("{}: of another command; what this one measures takes its place", other.string()));
    std::vector<std::string> command{places.program, "bench"};
    for (const Json& word : experiment.bench[i]) command.push_back(word);
    command.insert(command.end(), places.compute.begin(), places.compute.end());
    command.insert(command.end(), {"--markdown", with_number(places.out, i, ".md").string(), "--json",
                                   with_number(places.out, i, ".json").string()});
    measure(command, with_number(places.out, i, ".log"), claim, line, what);
    share_reports(experiment, folders);
  }
}

}  // namespace xformer::engine
