#include "engine/slurm_submission.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "cli/printed.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/text.h"
#include "engine/sweep_plan.h"
#include "measure/step_probe.h"
#include "sweep/estimate.h"

namespace xformer::engine {

namespace {

constexpr double kWorthAJob = 600;  // seconds: a job costs some to be queued, started and ended
constexpr double kHeadroom = 1.25;  // of memory, over what was seen or foreseen
// What a process takes beside its tensors: the program, LibTorch and buffers are 360 to 400 MB in records.
constexpr double kBesideTensors = 400e6;
// Batches are tried while their steps take no more than this.
constexpr int64_t kTried = int64_t{256} << 20;

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  const std::string text = read_file(file);
  for (const std::string_view line : split(text, '\n')) lines.emplace_back(line);
  while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
  if (!lines.empty() && lines.front().starts_with("#!")) lines.erase(lines.begin());  // the script has its own
  return lines;
}

// The most bytes of a process of these cells, as a bench foresees their tensors; nothing where one cannot be told.
std::optional<double> foreseen_bytes(const std::vector<const sweep::Cell*>& cells, const sweep::SweepOptions& options,
                                     ComputeArguments compute) {
  cli::ProgressLine line(cli::terminal_options(STDERR_FILENO));
  const SweepData data(cells, options, cli::progress_callback(line), /*generated_too=*/false);
  compute.device = "cpu";
  measure::BenchRun run = compute.start_bench();
  run.memory_limit = kTried;
  std::set<std::string> told;  // hashes
  double most = 0;
  for (const sweep::Cell* const one : cells) {
    const sweep::Cell& cell = *one;
    if (!told.insert(cell.plan.hash()).second) continue;
    const data::DataSource* const source = data.of(cell);
    if (source == nullptr && (data.lacking().contains(cell.id) || data::find_dataset(cell.plan.task).shape_is_likely))
      return std::nullopt;
    line.update(fmt::format("memory of {}", cell.label), -1);
    int64_t rows = cell.plan.options.values["training.batch"];
    if (source != nullptr) rows = std::min(rows, source->size(data::Split::kTrain));
    const data::DataShape shape = source != nullptr ? source->info().shape : plan::planned_shape(cell.plan);
    const int64_t tensors = measure::probe_steps(cell.plan, shape, rows, run).memory_bytes;
    if (tensors == 0) return std::nullopt;
    most = std::max(most, static_cast<double>(tensors) + kBesideTensors);
  }
  return most;
}

}  // namespace

std::vector<sweep::SlurmJob> slurm_jobs(const sweep::Experiment& experiment,
                                        const std::vector<const sweep::Cell*>& cells,
                                        const sweep::SweepOptions& options, const std::vector<std::string>& command,
                                        const SlurmWishes& wishes) {
  sweep::SlurmJob job;
  job.name = std::filesystem::absolute(experiment.file).stem().string();
  job.out = std::filesystem::absolute(options.out);
  job.command = command;
  job.jobs = options.jobs;
  job.threads = wishes.compute.threads;
  job.options = wishes.options;
  job.setup = wishes.setup.empty() ? experiment.setup : lines_of(wishes.setup);

  sweep::Estimator estimator;
  estimator.learn_folder(options.out);
  if (!options.record_to.empty()) estimator.learn_folder(options.record_to);
  double longest = 0, peak = 0;
  std::vector<const sweep::Cell*> unknown;
  for (const sweep::Cell* cell : cells) {
    job.cells.push_back(cell->id);
    if (const auto estimate = estimator.of(cell->plan)) {
      longest = std::max(longest, estimate->seconds);
      peak = std::max(peak, estimate->peak_bytes);
    } else {
      unknown.push_back(cell);
    }
  }
  const bool on_gpu = wishes.compute.device.starts_with("cuda") ||
                      std::any_of(wishes.options.begin(), wishes.options.end(),
                                  [](const std::string& option) { return option.find("gpu") != std::string::npos; });
  std::optional<double> rest = 0;
  if (!unknown.empty()) rest = on_gpu ? std::nullopt : foreseen_bytes(unknown, options, wishes.compute);
  if (rest) job.memory = static_cast<uint64_t>(std::llround(kHeadroom * std::max(peak, *rest)));
  if (wishes.cells_per_job > 0) job.cells_per_task = wishes.cells_per_job;
  else if (unknown.empty() && longest > 0)
    job.cells_per_task = std::max<int64_t>(1, static_cast<int64_t>(kWorthAJob / longest));
  // No fewer tasks than may run at a time.
  const auto count = static_cast<int64_t>(cells.size());
  if (wishes.cells_per_job == 0)
    job.cells_per_task = std::min(job.cells_per_task, std::max<int64_t>(1, count / std::max<int64_t>(1, job.jobs)));
  return sweep::in_arrays_of(job, sweep::most_tasks());
}

void print_slurm_jobs(const std::vector<sweep::SlurmJob>& jobs) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs.size() > 1)
      cli::note(fmt::format("array {} of {}{}:", i + 1, jobs.size(),
                            i > 0 ? ", to begin when the one before has ended" : ""));
    fmt::print("{}", sweep::slurm_script(jobs[i]));
  }
  if (jobs.empty()) return;
  if (jobs.front().memory == 0)
    cli::note(
        "no --mem: neither earlier records nor small steps here tell what all cells take (on a GPU, or their "
        "data is not here); --slurm=--mem=8G asks for it");
  if (jobs.front().threads == 0)
    cli::note("no --cpus-per-task: a cell uses the processors that Slurm gives it; --threads N asks for them");
}

void submit_slurm_jobs(const sweep::Experiment& experiment, const std::vector<sweep::SlurmJob>& jobs,
                       sweep::Journal& journal) {
  int64_t before = 0;
  for (const sweep::SlurmJob& job : jobs) {
    before = sweep::submit(sweep::slurm_script(job), before);
    Json entry{{"event", "submitted"}, {"experiment", experiment.name}, {"job", before}, {"cells", job.cells}};
    if (job.cells_per_task > 1) entry["cells_per_task"] = job.cells_per_task;
    journal.write(entry);
    fmt::print("submitted {} cells as job array {}{}\n", job.cells.size(), before,
               job.cells_per_task > 1 ? fmt::format(", {} to a task", job.cells_per_task) : "");
  }
}

}  // namespace xformer::engine
