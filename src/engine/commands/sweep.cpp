// `xformer sweep`: the cells of an experiment file, here, through Slurm, or as commands to be run elsewhere.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "cli/printed.h"
#include "cli/progress.h"
#include "core/names.h"
#include "core/text.h"
#include "engine/bench_experiment.h"
#include "engine/commands.h"
#include "engine/grid.h"
#include "engine/plan_arguments.h"
#include "engine/record_place.h"
#include "engine/signals.h"
#include "engine/slurm_submission.h"
#include "engine/sweep_plan.h"
#include "engine/sweep_view.h"
#include "tensor/device.h"

namespace xformer::engine {

namespace {

struct SweepArguments {
  std::string file, out, record_to, executor = "local", pattern, cell, seeds, setup;
  std::string grid_text;  // of the file of a grid, which is written before the first cell
  std::vector<std::string> words, data, gpus, slurm;
  ComputeArguments compute;
  GridArguments grid;
  int64_t jobs = 0, cells_per_job = 0;
  bool dry_run = false, probe = false, retry_failed = false, skip_missing = false, quiet = false;
};

// "uea/*=DIR" for the tasks that fit, DIR for all others.
std::function<std::vector<std::string>(const RunPlan&)> data_words(const std::vector<std::string>& entries) {
  std::vector<std::pair<std::string, std::string>> places;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    const std::string folder = equals == std::string::npos ? entry : entry.substr(equals + 1);
    XF_CHECK(std::filesystem::exists(folder), DataError, "--data {}: there is no {}", entry, folder);
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

int dry_run(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
            const sweep::SweepOptions& options, const SweepArguments& arguments) {
  ProgressLine line(terminal_options(STDERR_FILENO));
  const std::vector<CellStanding> standings = standings_of(experiment, cells, options, histories_in(options.out));
  const SweepData data(incomplete(cells, standings), options, progress_callback(line),
                       /*generated_too=*/arguments.probe);
  std::optional<measure::BenchRun> probe;
  if (arguments.probe) {
    probe = arguments.compute.start_bench();
    probe->progress = [&line](const std::string& text, double fraction) { line.update(text, fraction); };
  }
  print_sweep_plan(experiment, cells, standings, options, data, probe ? &*probe : nullptr);
  line.clear();
  const std::string problems = data.problems();
  XF_CHECK(problems.empty(), DataError, "data is not as it should be for {} of {} cells:{}", data.lacking().size(),
           cells.size(), problems);
  return 0;
}

// The cells whose data is there: all of them, or DataError, unless those that lack it may be skipped.
std::vector<sweep::Cell> cells_with_data(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
                                         const sweep::SweepOptions& options, bool skip_missing) {
  ProgressLine line(terminal_options(STDERR_FILENO));
  const auto standings = standings_of(experiment, cells, options, histories_in(options.out));
  const SweepData data(incomplete(cells, standings), options, progress_callback(line), /*generated_too=*/false);
  const std::string problems = data.problems();
  if (problems.empty()) return cells;
  line.finish();
  std::vector<sweep::Cell> rest = sweep::without(cells, data.lacking());
  XF_CHECK(
      skip_missing && !rest.empty(), DataError,
      "data is not as it should be for {} of {} cells, and nothing was started:{}\n--data [TASK=]DIR says where it "
      "is; `xformer data fetch NAME` gets it; --skip-missing runs the other {}",
      data.lacking().size(), cells.size(), problems, rest.size());
  cli::note(fmt::format("left out for want of data:{}", problems));
  return rest;
}

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

int print_commands(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
                   const sweep::SweepOptions& options) {
  const auto histories = histories_in(options.out);
  const std::vector<CellStanding> standings = standings_of(experiment, cells, options, histories);
  int64_t later = 0, given_up = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    const Json& chosen = standings[i].chosen;
    if (standings[i].kind == CellStand::kGivenUp) ++given_up;
    if (standings[i].ended()) continue;
    if (!cells[i].trials.empty() && chosen.is_null()) {
      ++later;
      continue;
    }
    const sweep::Cell cell = chosen.is_null() ? cells[i] : sweep::with_values(cells[i], chosen);
    fmt::print("{}\n", command_line(sweep::cell_command(options, cells, cell, histories)));
  }
  if (later > 0)
    cli::note(fmt::format("{} runs need the result of their search: ask again when its trials are completed", later));
  if (given_up > 0)
    cli::note(fmt::format("{} cells were given up; --retry-failed prints the commands of what failed", given_up));
  return 0;
}

// The cells that are neither ended nor queued go to Slurm, or the scripts for them are shown.
int submit(const sweep::Experiment& experiment, const std::vector<sweep::Cell>& cells,
           const sweep::SweepOptions& options, const SweepArguments& arguments) {
  std::vector<std::string> command{options.program,
                                   "sweep",
                                   std::filesystem::absolute(arguments.file).string(),
                                   "--out",
                                   std::filesystem::absolute(options.out).string(),
                                   "--jobs",
                                   "1"};
  const auto add = [&](const std::string& name, const std::string& value) {
    command.insert(command.end(), {name, value});
  };
  if (!options.record_to.empty()) add("--record-to", std::filesystem::absolute(options.record_to).string());
  for (const std::string& entry : arguments.data) {
    const size_t equals = entry.find('=');
    const size_t start = equals == std::string::npos ? 0 : equals + 1;
    add("--data", entry.substr(0, start) + std::filesystem::absolute(entry.substr(start)).string());
  }
  if (!arguments.seeds.empty()) add("--seeds", arguments.seeds);
  if (arguments.retry_failed) command.emplace_back("--retry-failed");
  command.insert(command.end(), options.compute.begin(), options.compute.end());

  const Path journal_file = options.out / "journal.jsonl";
  std::optional<sweep::Journal> journal;
  if (!arguments.dry_run) make_folders(options.out);
  if (!arguments.dry_run || std::filesystem::exists(journal_file)) journal.emplace(journal_file);
  const auto histories = journal ? journal->histories() : std::map<std::string, sweep::CellHistory>{};
  const std::set<std::string> queued = journal ? sweep::queued_cells(*journal) : std::set<std::string>{};
  const std::vector<CellStanding> standings = standings_of(experiment, cells, options, histories);
  std::vector<const sweep::Cell*> missing;
  for (size_t i = 0; i < cells.size(); ++i)
    if (cells[i].kind == sweep::CellKind::kRun && !queued.contains(cells[i].id) && !standings[i].ended())
      missing.push_back(&cells[i]);
  if (missing.empty()) {
    fmt::print("nothing to submit: {} cells are queued or running, the others have ended\n", queued.size());
    return 0;
  }
  const auto jobs = slurm_jobs(experiment, missing, options, command,
                               {arguments.slurm, arguments.setup, arguments.cells_per_job, arguments.compute});
  if (arguments.dry_run) print_slurm_jobs(jobs);
  else submit_slurm_jobs(experiment, jobs, *journal);
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

// A grid takes the place of a smaller one: UserError where runs of the folder's own file would be in no table of it.
void check_same_grid(const sweep::Experiment& grid) {
  const std::vector<sweep::Cell> cells = sweep::expand(grid);
  if (!std::filesystem::exists(grid.file)) return;
  for (const sweep::Cell& before : sweep::expand(sweep::read_experiment(grid.file)))
    XF_CHECK(std::any_of(cells.begin(), cells.end(), [&](const sweep::Cell& cell) { return cell.id == before.id; }),
             UserError, "{} has other runs, {} among them; give another --out, or a grid with those too",
             grid.file.string(), before.label);
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
  check_same_grid(experiment);
  arguments.grid_text = json.dump(2) + "\n";
  return experiment;
}

// Those that --record-to has no record of, which is said where it has some.
std::vector<sweep::Cell> cells_without_record(const std::vector<sweep::Cell>& cells, const Path& records) {
  std::vector<sweep::Cell> rest = sweep::unrecorded(cells, records);
  const auto runs = [](const std::vector<sweep::Cell>& of) {
    return std::count_if(of.begin(), of.end(), [](const auto& cell) { return cell.kind == sweep::CellKind::kRun; });
  };
  if (runs(rest) < runs(cells))
    cli::note(fmt::format("{} of {} runs have their records in {}: not run again", runs(cells) - runs(rest),
                          runs(cells), records.string()));
  return rest;
}

int sweep_experiment(SweepArguments& arguments) {
  static_cast<void>(choice("--executor: ", "executor", arguments.executor, {"local", "slurm", "print"}));
  arguments.compute.check();
  XF_CHECK(arguments.dry_run || !arguments.probe, UserError, "--probe is how --dry-run learns time and memory");
  XF_CHECK(arguments.gpus.empty() || arguments.executor == "local", UserError,
           "--gpus shares out the devices of this machine; with --executor {} the {}", arguments.executor,
           arguments.executor == "slurm" ? "queue does: --slurm=--gpus=1" : "commands' own environment names them");
  XF_CHECK(arguments.gpus.empty() || arguments.compute.device == "auto" || arguments.compute.device == "cuda",
           UserError, "--gpus gives each cell one CUDA device, its first; --device {} is another",
           arguments.compute.device);
  if (!arguments.gpus.empty()) arguments.compute.device = "cuda";  // a cell without its device is no run on the CPU
  for (const auto& [option, given] : {std::pair{"--slurm", !arguments.slurm.empty()},
                                      {"--setup", !arguments.setup.empty()},
                                      {"--cells-per-job", arguments.cells_per_job > 0}})
    XF_CHECK(!given || arguments.executor == "slurm", UserError, "{} belongs to --executor slurm, not to {}", option,
             arguments.executor);
  sweep::Experiment experiment = read_experiment(arguments);
  if (experiment.bench.is_array()) return measure(experiment, arguments);
  if (!arguments.seeds.empty()) experiment.seeds = sweep::parse_seeds(arguments.seeds, "--seeds");
  std::vector<sweep::Cell> cells = sweep::expand(experiment);
  if (const size_t waiting = sweep::waiting_runs(experiment).size(); waiting > 0)
    cli::note(
        fmt::format("{} runs wait for names that are not there yet (`xformer validate {}`)", waiting, arguments.file));
  if (!arguments.cell.empty()) cells = sweep::only(cells, arguments.cell, "--cell");
  else if (!arguments.pattern.empty()) cells = sweep::only(cells, arguments.pattern, "--only");
  sweep::SweepOptions options;
  options.out = out_folder(experiment, arguments);
  options.record_to = arguments.record_to;
  if (!arguments.record_to.empty()) {
    check_results_folder(options.record_to);
    cells = cells_without_record(cells, options.record_to);
    if (cells.empty()) {
      fmt::print("`xformer report {} --records {}` makes the table\n", shell_word(arguments.file),
                 shell_word(options.record_to.string()));
      return 0;
    }
  }
  options.program = own_program();
  options.data = data_words(arguments.data);
  options.gpus = arguments.gpus;
  options.jobs = arguments.jobs > 0 ? arguments.jobs : std::max<int64_t>(1, static_cast<int64_t>(options.gpus.size()));
  options.compute = arguments.compute.words();
  // Cells side by side share the processors; Slurm's have their own, and $OMP_NUM_THREADS is for each.
  if (arguments.compute.threads == 0 && threads_of_environment() == 0 && options.jobs > 1 &&
      arguments.executor != "slurm")
    options.compute.insert(options.compute.end(),
                           {"--threads", std::to_string(std::max<int64_t>(1, usable_processors() / options.jobs))});
  options.retry_failed = arguments.retry_failed;
  if (arguments.dry_run && arguments.executor == "slurm") return submit(experiment, cells, options, arguments);
  if (arguments.dry_run) return dry_run(experiment, cells, options, arguments);
  if (arguments.executor == "print") return print_commands(experiment, cells, options);
  if (arguments.executor == "local") require_device(arguments.compute.device);
  cells = cells_with_data(experiment, cells, options, arguments.skip_missing);
  if (!arguments.grid_text.empty()) {
    make_folders(options.out);
    write_file_atomically(arguments.file, arguments.grid_text);
  }
  if (arguments.executor == "slurm") return submit(experiment, cells, options, arguments);
  catch_stop_signals();
  options.stop_requested = stop_signal_came;
  const sweep::SweepProgress result = [&] {
    SweepView view(arguments.quiet);
    return sweep::run_sweep(experiment, cells, options, view);
  }();
  fmt::print("{}: {} of {} cells completed{}\n", experiment.title, result.completed, result.cells,
             result.failed > 0 ? fmt::format(", {} failed", result.failed) : "");
  for (const auto& [cause, count] : result.causes) fmt::print("  {} cell{}: {}\n", count, count == 1 ? "" : "s", cause);
  if (result.failed > 0) fmt::print("--retry-failed tries them again, when the cause is gone\n");
  const Path records = options.record_to.empty() ? options.out : options.record_to;
  fmt::print("runs and journal in {}; `xformer report {} --records {}` makes the table\n", options.out.string(),
             shell_word(arguments.file), shell_word(records.string()));
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
  command
      .add_option("--out", arguments->out,
                  "run directories and the journal; default: runs/FOLDER/FILE, or runs/FILE of a file in this folder")
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
  words(command.add_option("--executor", arguments->executor,
                           "slurm: a job array; print: the commands of what is missing"),
        {"local", "slurm", "print"})
      ->capture_default_str();
  command.add_option("--slurm", arguments->slurm, "one more option for sbatch, e.g. --slurm=--time=4:00:00")
      ->type_name("OPTION");
  command
      .add_option("--setup", arguments->setup,
                  "lines of shell that stand in Slurm's script before its first cell; default: the experiment's setup")
      ->type_name("FILE");
  command
      .add_option("--cells-per-job", arguments->cells_per_job,
                  "cells that share one task of Slurm's array; default: as many as take ten minutes together")
      ->check(whole_number(1));
  command
      .add_option("--only", arguments->pattern,
                  "cells with this in their label task/model/seed N, e.g. 'text/mrs-*/seed 0'")
      ->type_name("PATTERN");
  command.add_option("--cell", arguments->cell, "one cell by the id that the journal gives it")->type_name("ID");
  command.add_option("--seeds", arguments->seeds, "of a grid, or other seeds than the file's, e.g. 0-4");
  command.add_flag("--retry-failed", arguments->retry_failed, "try cells again that were given up");
  command.add_flag("--skip-missing", arguments->skip_missing, "leave out cells whose data is not there");
  command.add_flag("--dry-run", arguments->dry_run,
                   "show tasks and cells, their data, state, time and memory (with --executor slurm the scripts), and "
                   "stop");
  command.add_flag("--probe", arguments->probe, "with --dry-run: take five steps of what no earlier record tells of");
  command.add_flag("--quiet", arguments->quiet, "show the result only; the journal has the rest");
  arguments->compute.add_to(command);
  return [arguments] { return sweep_experiment(*arguments); };
}

}  // namespace xformer::engine
