// `xformer sweep`: the cells of an experiment file, here, through Slurm, or as commands to be run elsewhere.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "cli/printed.h"
#include "core/names.h"
#include "core/text.h"
#include "data/datasets.h"
#include "engine/bench_experiment.h"
#include "engine/commands.h"
#include "engine/grid.h"
#include "engine/plan_arguments.h"
#include "engine/record_place.h"
#include "engine/signals.h"
#include "engine/sweep_view.h"
#include "sweep/slurm.h"
#include "tensor/device.h"

namespace xformer::engine {

namespace {

struct SweepArguments {
  std::string file, out, record_to, executor = "local", pattern, cell, seeds;
  std::vector<std::string> words, data, gpus, slurm;
  ComputeArguments compute;
  GridArguments grid;
  int64_t jobs = 0;
  bool dry_run = false, retry_failed = false;
};

// "uea/*=DIR" for the tasks that fit, DIR for all others.
std::function<std::vector<std::string>(const RunPlan&)> data_words(const std::vector<std::string>& entries) {
  std::vector<std::pair<std::string, std::string>> places;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    const std::string folder = equals == std::string::npos ? entry : entry.substr(equals + 1);
    XF_CHECK(std::filesystem::exists(folder), UserError, "--data {}: there is no {}", entry, folder);
    places.emplace_back(equals == std::string::npos ? "*" : entry.substr(0, equals),
                        std::filesystem::absolute(folder).string());
  }
  std::stable_partition(places.begin(), places.end(), [](const auto& place) { return place.first != "*"; });
  return [places](const RunPlan& plan) -> std::vector<std::string> {
    for (const auto& [pattern, folder] : places)
      if (matches_pattern(pattern, plan.task)) return {"--data", folder};
    return {};
  };
}

enum class Standing { kToDo, kBegun, kCompleted, kGivenUp };

struct CellStanding {
  Standing standing = Standing::kToDo;
  std::string words = "to do";
  [[nodiscard]] bool ended() const { return standing == Standing::kCompleted || standing == Standing::kGivenUp; }
};

CellStanding standing_of(const sweep::Cell& cell, const sweep::SweepOptions& options,
                         const std::map<std::string, sweep::CellHistory>& histories) {
  const auto found = histories.find(cell.id);
  const sweep::CellHistory history = found == histories.end() ? sweep::CellHistory{} : found->second;
  if (history.completed || sweep::completed_record(sweep::run_folder(options.out, cell, history.micro_batch)))
    return {Standing::kCompleted, "completed"};
  if (!history.gave_up.empty()) return {Standing::kGivenUp, history.gave_up};
  if (history.attempts > 0) return {Standing::kBegun, fmt::format("begun, {} attempts", history.attempts)};
  return {};
}

std::map<std::string, sweep::CellHistory> histories_in(const Path& out) {
  if (!std::filesystem::exists(out / "journal.jsonl")) return {};
  return sweep::Journal(out / "journal.jsonl").histories();
}

// DataError that names every task without files, before the first cell would find its own missing.
void check_data(const std::vector<sweep::Cell>& cells, const sweep::SweepOptions& options) {
  const auto histories = histories_in(options.out);
  std::set<std::string> missing;
  for (const sweep::Cell& cell : cells)
    if (standing_of(cell, options, histories).standing != Standing::kCompleted &&
        !data::find_dataset(cell.plan.task).generated && options.data(cell.plan).empty() &&
        DataArguments{}.location(cell.plan.task).folder.empty())
      missing.insert(cell.plan.task);
  XF_CHECK(missing.empty(), DataError,
           "{} need{} files: --data [TASK=]DIR, or $XFORMER_DATA/TASK; `xformer describe {}` says where they come from",
           fmt::join(missing, ", "), missing.size() == 1 ? "s" : "", *missing.begin());
}

int dry_run(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
            const sweep::SweepOptions& options) {
  sweep::Estimator estimator;
  estimator.learn_folder(options.out);
  if (!options.record_to.empty()) estimator.learn_folder(options.record_to);
  const auto histories = histories_in(options.out);
  std::vector<std::vector<std::string>> rows;
  double seconds = 0, peak = 0;
  int64_t unknown = 0, missing = 0;
  for (const sweep::Cell& cell : cells) {
    const CellStanding state = standing_of(cell, options, histories);
    const auto estimate = estimator.of(cell.plan);
    rows.push_back({cell.label, cell.plan.protocol, state.words, estimate ? format_duration(estimate->seconds) : "?",
                    estimate ? format_bytes(static_cast<uint64_t>(estimate->peak_bytes)) : "?",
                    estimate ? estimate->from : ""});
    if (state.ended()) continue;
    ++missing;
    if (!estimate) ++unknown;
    else {
      seconds += estimate->seconds;
      peak = std::max(peak, estimate->peak_bytes);
    }
  }
  print_table({"cell", "protocol", "state", "time", "memory", "as"}, rows, /*markdown=*/false);
  fmt::print("\n{}: {} cells, {} to run, {} at a time", experiment.title, cells.size(), missing, options.jobs);
  if (missing > unknown)
    fmt::print("; {}{} left, at most {} for a cell", unknown > 0 ? "more than " : "about ",
               format_duration(seconds / static_cast<double>(options.jobs)), format_bytes(static_cast<uint64_t>(peak)));
  fmt::print("{}\n", unknown > 0 ? fmt::format("; of {} no earlier record tells", unknown) : "");
  return 0;
}

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

int print_commands(const std::vector<sweep::Cell>& cells, const sweep::SweepOptions& options) {
  const auto histories = histories_in(options.out);
  int64_t later = 0;
  for (const sweep::Cell& cell : cells) {
    if (standing_of(cell, options, histories).standing == Standing::kCompleted) continue;
    if (!cell.trials.empty()) ++later;
    else fmt::print("{}\n", command_line(sweep::cell_command(options, cells, cell, histories)));
  }
  if (later > 0)
    fmt::print(stderr, "{} runs need the result of their search: ask again when its trials are completed\n", later);
  return 0;
}

int submit(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
           const sweep::SweepOptions& options, const SweepArguments& arguments) {
  std::filesystem::create_directories(options.out);
  sweep::Journal journal(options.out / "journal.jsonl");
  const auto histories = journal.histories();
  const std::set<std::string> queued = sweep::queued_cells(journal);
  sweep::SlurmJob job;
  for (const sweep::Cell& cell : cells) {
    const CellStanding state = standing_of(cell, options, histories);
    if (cell.kind == sweep::CellKind::kRun && !queued.contains(cell.id) &&
        (!state.ended() || (arguments.retry_failed && state.standing == Standing::kGivenUp)))
      job.cells.push_back(cell.id);
  }
  if (job.cells.empty()) {
    fmt::print("nothing to submit: {} cells are queued or running, the others have ended\n", queued.size());
    return 0;
  }
  const Path file = std::filesystem::absolute(arguments.file);
  job.name = file.stem().string();
  job.out = std::filesystem::absolute(options.out);
  job.jobs = options.jobs;
  job.options = arguments.slurm;
  job.command = {options.program, "sweep", file.string(), "--out", job.out.string(), "--jobs", "1"};
  const auto add = [&](const std::string& name, const std::string& value) {
    job.command.insert(job.command.end(), {name, value});
  };
  if (!options.record_to.empty()) add("--record-to", std::filesystem::absolute(options.record_to).string());
  for (const std::string& entry : arguments.data) {
    const size_t equals = entry.find('=');
    const size_t start = equals == std::string::npos ? 0 : equals + 1;
    add("--data", entry.substr(0, start) + std::filesystem::absolute(entry.substr(start)).string());
  }
  if (!arguments.seeds.empty()) add("--seeds", arguments.seeds);
  if (arguments.retry_failed) job.command.emplace_back("--retry-failed");
  job.command.insert(job.command.end(), options.compute.begin(), options.compute.end());
  const int64_t number = sweep::submit(sweep::slurm_script(job));
  journal.write({{"event", "submitted"}, {"experiment", experiment.name}, {"job", number}, {"cells", job.cells}});
  fmt::print("submitted {} cells as job array {}\n", job.cells.size(), number);
  return 0;
}

Path out_folder(const sweep::Experiment& experiment, const SweepArguments& arguments) {
  return arguments.out.empty() ? sweep::usual_folder("runs", experiment) : Path(arguments.out);
}

// The program that people call, which stands beside the engine.
std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename("xformer").string();
}

int measure(const sweep::Experiment& experiment, const SweepArguments& arguments) {
  for (const Json& command : experiment.bench) {
    check_bench(command.get<std::vector<std::string>>());
    if (arguments.dry_run || arguments.executor == "print")
      fmt::print("xformer bench {}\n", command_line(command.get<std::vector<std::string>>()));
  }
  if (arguments.dry_run || arguments.executor == "print") return 0;
  XF_CHECK(arguments.executor == "local", UserError, "--executor {}: measurements run here, one after the other",
           arguments.executor);
  const Path out = out_folder(experiment, arguments);
  if (!arguments.record_to.empty()) check_results_folder(arguments.record_to);
  run_bench_experiment(experiment, {own_program(), out, arguments.record_to, arguments.compute.words()});
  fmt::print("{}: {} measurements, reports and tables in {}\n", experiment.title, experiment.bench.size(),
             arguments.record_to.empty() ? out.string() : arguments.record_to);
  return 0;
}

// Of the file, or of the words in its place; those are written as a file among the runs once they are to be made, for
// `report` and for cells that others start.
sweep::Experiment read_experiment(SweepArguments& arguments) {
  for (const std::string& word : arguments.words) {
    if (word.find('=') != std::string::npos && !std::filesystem::exists(word)) {
      arguments.grid.settings.push_back(word);
      continue;
    }
    XF_CHECK(arguments.file.empty(), UserError, "expected one experiment file, got {} and {}", arguments.file, word);
    arguments.file = word;
  }
  if (!arguments.grid.given()) {
    XF_CHECK(!arguments.file.empty(), UserError,
             "expected an experiment file, or a grid: --model a,b --task listops --seeds 0-4");
    return sweep::read_experiment(arguments.file);
  }
  XF_CHECK(arguments.file.empty(), UserError,
           "{}: a file says which runs there are; got --model, --task or settings beside it", arguments.file);
  if (arguments.out.empty()) arguments.out = arguments.grid.usual_folder();
  arguments.file = (Path(arguments.out) / sweep::kGridFile).string();
  Json json = arguments.grid.experiment();
  json["seeds"] = arguments.seeds.empty() ? "0" : arguments.seeds;
  const sweep::Experiment experiment = sweep::parse_experiment(json, arguments.file);
  static_cast<void>(sweep::expand(experiment));  // nothing is written of names that are not there
  if (!arguments.dry_run && arguments.executor != "print") {
    std::filesystem::create_directories(arguments.out);
    write_file_atomically(arguments.file, json.dump(2) + "\n");
  }
  return experiment;
}

int sweep_experiment(SweepArguments& arguments) {
  static_cast<void>(choice("--executor: ", "executor", arguments.executor, {"local", "slurm", "print"}));
  arguments.compute.check();
  XF_CHECK(arguments.gpus.empty() || arguments.executor == "local", UserError,
           "--gpus shares out the devices of this machine; with --executor {} the {}", arguments.executor,
           arguments.executor == "slurm" ? "queue does: --slurm=--gpus=1" : "commands' own environment names them");
  sweep::Experiment experiment = read_experiment(arguments);
  if (experiment.bench.is_array()) return measure(experiment, arguments);
  if (!arguments.seeds.empty()) experiment.seeds = sweep::parse_seeds(arguments.seeds, "--seeds");
  std::vector<sweep::Cell> cells = sweep::expand(experiment);
  if (const int64_t waiting = sweep::waiting_runs(experiment); waiting > 0)
    fmt::print(stderr, "{} runs wait for names that are not there yet (`xformer validate {}`)\n", waiting,
               arguments.file);
  if (!arguments.cell.empty()) cells = sweep::only(cells, arguments.cell);
  else if (!arguments.pattern.empty()) cells = sweep::only(cells, arguments.pattern);
  sweep::SweepOptions options;
  options.out = out_folder(experiment, arguments);
  options.record_to = arguments.record_to;
  if (!arguments.record_to.empty()) check_results_folder(options.record_to);
  options.program = own_program();
  options.data = data_words(arguments.data);
  options.gpus = arguments.gpus;
  options.jobs = arguments.jobs > 0 ? arguments.jobs : std::max<int64_t>(1, static_cast<int64_t>(options.gpus.size()));
  options.compute = arguments.compute.words();
  // Cells side by side share the processors; Slurm's have their own.
  if (arguments.compute.threads == 0 && options.jobs > 1 && arguments.executor != "slurm")
    options.compute.insert(options.compute.end(),
                           {"--threads", std::to_string(std::max<int64_t>(1, usable_processors() / options.jobs))});
  options.retry_failed = arguments.retry_failed;
  if (arguments.dry_run) return dry_run(experiment, cells, options);
  if (arguments.executor == "print") return print_commands(cells, options);
  check_data(cells, options);
  if (arguments.executor == "slurm") return submit(experiment, cells, options, arguments);
  catch_stop_signals();
  options.stop_requested = stop_signal_came;
  const sweep::SweepProgress result = [&] {
    SweepView view;
    return sweep::run_sweep(experiment, cells, options, view);
  }();
  fmt::print("{}: {} of {} cells completed{}\n", experiment.title, result.completed, result.cells,
             result.failed > 0 ? fmt::format(", {} failed", result.failed) : "");
  fmt::print("runs and journal in {}\n", options.out.string());
  return result.failed > 0 ? 1 : 0;
}

}  // namespace

std::function<int()> add_sweep(CLI::App& program) {
  const auto arguments = std::make_shared<SweepArguments>();
  CLI::App& command =
      *program.add_subcommand("sweep", "run the cells of an experiment file or a grid, until all have a record");
  command.add_option("FILE", arguments->words,
                     "experiment: JSON, YAML or TOML (docs/experiments.md); in its place a grid, whose key=value words "
                     "need no --set");
  arguments->grid.add_to(command);
  command.add_option("--out", arguments->out, "run directories and the journal; default: under runs/")
      ->type_name("DIR");
  command.add_option("--record-to", arguments->record_to, "also put the records there")->type_name("DIR");
  command
      .add_option("--data", arguments->data,
                  "folder of the data, of all tasks or of those that fit a pattern; again "
                  "for more")
      ->type_name("[TASK=]DIR");
  command.add_option("--jobs", arguments->jobs, "cells at a time; default: one, or one for each of --gpus")
      ->check(whole_number(1));
  command.add_option("--gpus", arguments->gpus, "devices to share out among the cells, e.g. 0,1")->delimiter(',');
  command
      .add_option("--executor", arguments->executor,
                  "local; slurm: a job array; print: the commands of what is missing")
      ->capture_default_str();
  command.add_option("--slurm", arguments->slurm, "one more option for sbatch, e.g. --slurm=--time=4:00:00")
      ->type_name("OPTION");
  command
      .add_option("--only", arguments->pattern,
                  "cells with this in their label task/model/seed N, e.g. 'text/mrs-*/seed 0'")
      ->type_name("PATTERN");
  command.add_option("--cell", arguments->cell, "one cell by the id that the journal gives it")->type_name("ID");
  command.add_option("--seeds", arguments->seeds, "of a grid, or other seeds than the file's, e.g. 0-4");
  command.add_flag("--retry-failed", arguments->retry_failed, "try cells again that were given up");
  command.add_flag("--dry-run", arguments->dry_run, "show cells, their state, time and memory, and stop");
  arguments->compute.add_to(command);
  return [arguments] { return sweep_experiment(*arguments); };
}

}  // namespace xformer::engine
