#include "engine/bench_experiment.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "cli/progress.h"
#include "core/text.h"
#include "engine/signals.h"
#include "sweep/cell_record.h"

namespace xformer::engine {

using namespace cli;

namespace {

constexpr auto kTick = std::chrono::milliseconds(200);

// One command; its report is there afterwards.
void measure(const std::vector<std::string>& command, const Path& log, const FileLock& claim, ProgressLine& line,
             const std::string& what) {
  sweep::CellProcess process(command, {}, log, claim.descriptor());
  const auto start = std::chrono::steady_clock::now();
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
  XF_CHECK(!told, Interrupted, "stopped; the same command goes on with what is not measured yet");
  XF_CHECK(ending->signal == 0, InternalError, "{}: ended by signal {}", what, ending->signal);
  if (ending->exit_code != 0)
    throw Error(static_cast<ExitCode>(ending->exit_code), fmt::format("{}: {}", what, sweep::last_words(log)));
}

}  // namespace

void run_bench_experiment(const sweep::Experiment& experiment, const BenchPlaces& places) {
  make_folders(places.out);
  if (!places.record_to.empty()) make_folders(places.record_to);
  catch_stop_signals();
  for (size_t i = 0; i < experiment.bench.size(); ++i) {
    const std::string stem = fmt::format("bench-{}", i + 1);
    const Path report = places.out / (stem + ".json"), table = places.out / (stem + ".md");
    ProgressLine line(terminal_options(STDERR_FILENO));
    const FileLock claim = FileLock::wait(places.out / (stem + ".claim"));
    if (!std::filesystem::exists(report)) {
      std::vector<std::string> command{places.program, "bench"};
      for (const Json& word : experiment.bench[i]) command.push_back(word);
      command.insert(command.end(), places.compute.begin(), places.compute.end());
      // The table comes first: where the report is, all is.
      command.insert(command.end(), {"--markdown", table.string(), "--json", report.string()});
      measure(command, places.out / (stem + ".log"), claim, line,
              fmt::format("{}, {} of {}", experiment.title, i + 1, experiment.bench.size()));
    }
    if (places.record_to.empty()) continue;
    write_file_atomically(places.record_to / (stem + ".md"), read_file(table));
    write_file_atomically(places.record_to / (stem + ".json"), read_file(report));
  }
}

}  // namespace xformer::engine
