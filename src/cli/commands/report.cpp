// `xformer report`: an experiment, or records of runs, as a table of models and tasks.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/printed.h"
#include "core/error.h"
#include "core/json_file.h"
#include "core/names.h"
#include "reporting/bench_comparison.h"
#include "reporting/result_table.h"

namespace xformer::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> records;
  std::string format = "markdown", published, folder, out;
  reporting::RecordSelection selection;
  const CLI::Option* format_option = nullptr;
};

// A person's terminal gets aligned text where no format was asked for.
int written(const std::string& text, const ReportArguments& arguments) {
  if (arguments.out.empty() && arguments.format_option->count() == 0) print_markdown(text);
  else if (arguments.out.empty()) fmt::print("{}", text);
  else write_file_atomically(arguments.out, text);
  return 0;
}

// Its title, and what differs from the paper.
std::string heading(const ReportedExperiment& experiment) {
  std::string text = fmt::format("# {}\n\n", experiment.title);
  for (const std::string& note : experiment.notes) text += fmt::format("- {}\n", note);
  return experiment.notes.empty() ? text : text + "\n";
}

// Reports of an experiment that measures, beside its published ratios.
std::string measured(const ReportedExperiment& experiment) {
  const Path& folder = experiment.folder;
  XF_CHECK(experiment.published, UserError,
           "{}: it has no published values to stand beside; its tables are {}/bench-*.md", experiment.file.string(),
           folder.string());
  std::string text = heading(experiment);
  for (int64_t i = 0; i < experiment.measurements; ++i) {
    const Path path = folder / fmt::format("bench-{}.json", i + 1);
    XF_CHECK(std::filesystem::exists(path), DataError, "{}: not measured yet: there is no {}", experiment.file.string(),
             path.string());
    const Json report = read_json_file(path);
    text += fmt::format("Ours: `{}`, commit {}.\n\n", report.value("command", ""),
                        report["software"].value("commit", "").substr(0, 12));
    const auto rows = reporting::compare_bench(report, *experiment.published, experiment.published_name);
    const auto scales = reporting::compare_scales(report);
    const bool to_softmax = std::any_of(rows.begin(), rows.end(), [](const reporting::BenchRow& row) {
      return row.speed || row.saving || row.published_speed || row.published_saving;
    });
    if (to_softmax || scales.empty()) text += as_markdown(rows) + "\n";
    if (!scales.empty()) text += as_markdown(scales) + "\n";
  }
  const std::string sentences = reporting::published_sentences(*experiment.published, experiment.published_name);
  return sentences.empty() ? text : text + sentences;
}

int report(const ReportArguments& arguments, const ExperimentReader& experiments) {
  static_cast<void>(choice("--format: ", "format", arguments.format, {"markdown", "latex", "csv", "html", "json"}));
  std::vector<reporting::PublishedValue> published;
  if (!arguments.published.empty()) published = reporting::read_published(arguments.published);
  std::vector<RunRecord> records;
  std::vector<std::string> average_over;
  std::string title;
  if (arguments.records.size() == 1 && is_experiment(arguments.records.front())) {
    const ReportedExperiment experiment = experiments(arguments.records.front(), arguments.folder);
    if (experiment.measurements > 0) {
      XF_CHECK(arguments.format == "markdown", UserError, "--format {}: measurements are printed as markdown",
               arguments.format);
      return written(measured(experiment), arguments);
    }
    if (experiment.published && arguments.published.empty())
      published = reporting::read_published(*experiment.published, experiment.published_name);
    if (!experiment.remark.empty()) fmt::print(stderr, "xformer: {}\n", experiment.remark);
    records = experiment.records;
    XF_CHECK(!records.empty(), UserError, "{}: all its runs wait for names that are not there yet",
             arguments.records.front());
    title = heading(experiment);
    average_over = experiment.average_over;
  } else {
    records = selected_records(arguments.records, arguments.selection);
  }
  const reporting::ResultTable table = reporting::result_table(records, published, average_over);
  const std::string text = arguments.format == "markdown" ? title + as_markdown(table)
                           : arguments.format == "latex"  ? as_latex(table)
                           : arguments.format == "csv"    ? as_csv(table)
                           : arguments.format == "html"   ? as_html(table)
                                                          : as_json(table).dump(2) + "\n";
  return written(text, arguments);
}

}  // namespace

std::function<int()> add_report(CLI::App& program, const ExperimentReader& experiments) {
  const auto arguments = std::make_shared<ReportArguments>();
  CLI::App& command =
      *program.add_subcommand("report", "an experiment, or records of runs, as a table of models and tasks");
  command
      .add_option("RECORDS", arguments->records,
                  "an experiment file, whose missing runs are shown, too; or records, or folders of them")
      ->required();
  command
      .add_option("--records", arguments->folder,
                  "where an experiment's records are; default: results/runs/ or runs/ and its name")
      ->type_name("DIR");
  arguments->format_option =
      words(command.add_option("--format", arguments->format, "latex with booktabs, html: a page; else aligned text"),
            {"markdown", "latex", "csv", "html", "json"});
  command
      .add_option("--published", arguments->published,
                  "published values to stand beside: JSON, [{\"task\", \"model\", \"value\", \"source\"}, ...]")
      ->type_name("FILE");
  add_selection(command, arguments->selection);
  command.add_option("--out", arguments->out, "write here instead of printing")->type_name("FILE");
  return [arguments, experiments] { return report(*arguments, experiments); };
}

}  // namespace xformer::cli
