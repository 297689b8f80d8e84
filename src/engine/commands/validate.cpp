// `xformer validate`: whether experiment files ask for what there is, without touching data or device.
#include <fmt/ranges.h>

#include "cli/printed.h"
#include "cli/report_page.h"
#include "core/error.h"
#include "engine/commands.h"
#include "engine/experiment_records.h"
#include "reporting/result_table.h"
#include "sweep/cells.h"

namespace xformer::engine {

namespace {

// The metric and the columns that the experiment's report would have, beside its published values.
void check_report(const std::string& file) {
  cli::ReportedExperiment reported = reported_experiment(file, {});
  std::vector<reporting::PublishedValue> published;
  if (reported.published) published = reporting::read_published(*reported.published, reported.published_name);
  const std::string metric = cli::judge(reported.records, reported.metric, file + ": metric");
  reporting::ResultTable table = cli::table_of(reported, published, {.metric = metric});
  reporting::ResultView view;
  cli::choose_columns(reported.columns, file + ": columns", table, view);
}

void check(const std::string& file) {
  const sweep::Experiment experiment = sweep::read_experiment(file);
  const std::vector<sweep::Cell> cells = sweep::expand(experiment);
  if (experiment.bench.is_array()) {
    for (size_t i = 0; i < experiment.bench.size(); ++i) {
      try {
        check_bench(experiment.bench[i].get<std::vector<std::string>>());
      } catch (const UserError& error) {
        throw UserError(fmt::format("{}: bench[{}]: {}", file, i, error.what()));
      }
    }
    const size_t count = experiment.bench.size();
    fmt::print("{}: {}: {} measurement{}\n", file, experiment.title, count, count == 1 ? "" : "s");
  } else {
    check_report(file);
    const auto runs = std::count_if(cells.begin(), cells.end(),
                                    [](const sweep::Cell& cell) { return cell.kind == sweep::CellKind::kRun; });
    fmt::print("{}: {}: {} run{}", file, experiment.title, runs, runs == 1 ? "" : "s");
    if (static_cast<size_t>(runs) < cells.size()) fmt::print(" and {} before them", cells.size() - runs);
    fmt::print("\n");
  }
  const size_t waiting = sweep::waiting_runs(experiment).size();
  const auto print_names = [&](const char* kind, const std::vector<std::string>& names) {
    if (!names.empty()) fmt::print("  waits for {}: {}\n", kind, fmt::join(names, ", "));
  };
  print_names("tasks", experiment.waits_for_tasks);
  print_names("models", experiment.waits_for_models);
  if (waiting > 0) fmt::print("  {} runs wait\n", waiting);
}

// Printed values that experiments stand beside: a list, where an experiment is an object.
bool is_published(const std::string& file) {
  return Path(file).extension() == ".json" && std::filesystem::is_regular_file(file) &&
         Json::parse(read_file(file), nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true).is_array();
}

// Every file is looked at; the worst of what was wrong is the exit code.
int validate(const std::vector<std::string>& files) {
  int code = 0;
  for (const std::string& file : files) {
    try {
      if (is_published(file)) {
        static_cast<void>(reporting::read_published(file));
        fmt::print("{}: published values, no experiment\n", file);
      } else {
        check(file);
      }
    } catch (const Error& error) {
      std::fflush(stdout);
      cli::note(fmt::format("xformer: {}", error.what()));
      code = std::max(code, static_cast<int>(error.code()));
    }
  }
  return code;
}

}  // namespace

std::function<int()> add_validate(CLI::App& program) {
  const auto files = std::make_shared<std::vector<std::string>>();
  CLI::App& command = *program.add_subcommand("validate", "check experiment files: every name, option and combination");
  command.add_option("FILE", *files, "experiment files")->required();
  return [files] { return validate(*files); };
}

}  // namespace xformer::engine
