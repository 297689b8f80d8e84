// `xformer report`: experiments, or records of runs, as tables of models and tasks.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/printed.h"
#include "cli/report_page.h"
#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "reporting/quantities.h"
#include "reporting/record_selection.h"
#include "reporting/result_formats.h"

namespace xformer::cli {
namespace {

using reporting::LatexNumbers;
using reporting::ResultTable;
using reporting::ResultView;

struct ReportArguments {
  std::vector<std::string> records;
  std::string format = "markdown", published, folder, out, columns, metric, average;
  ResultView view;
  int digits = -1;
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

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> result;
  for (const std::string_view word : split(list, ','))
    if (!trim(word).empty()) result.emplace_back(trim(word));
  return result;
}

// That there is the average that was asked for.
void check_average(const std::vector<std::string>& tasks, const ResultTable& table) {
  std::vector<std::string> known;
  for (const reporting::ResultColumn& column : table.columns) known.push_back(column.task);
  for (const std::string& task : tasks)
    XF_CHECK(std::find(known.begin(), known.end(), task) != known.end(), UserError, "--average: {}",
             unknown_name_message("task", task, known));
  XF_CHECK(!table.averaged.empty(), UserError,
           "--average: it is of two columns with runs or more that are all judged by shares (%)");
}

std::string written_as(ReportFormat format, const ResultTable& table, const ResultView& view) {
  switch (format) {
    case ReportFormat::kLatex:
      return as_latex(table, LatexNumbers::kSiunitx, view);
    case ReportFormat::kLatexPlain:
      return as_latex(table, LatexNumbers::kPlain, view);
    case ReportFormat::kCsv:
      return as_csv(table);
    case ReportFormat::kLong:
      return as_long_csv(table);
    case ReportFormat::kJson:
      return as_json(table).dump(2) + "\n";
    case ReportFormat::kHtml:
      return as_html(table, view);
    case ReportFormat::kMarkdown:
      break;
  }
  return as_markdown(table, view);
}

// Columns that somebody asked for by name are not left out in silence.
void note_missing(const std::vector<std::string>& wanted, const ResultTable& table) {
  for (const auto& [name, value, why] :
       {std::tuple{"average", &reporting::ResultRow::average,
                   "one is of a model with scores of all tasks, two at least"},
        std::tuple{"time", &reporting::ResultRow::time, "one is of a model with runs of all tasks"},
        std::tuple{"energy", &reporting::ResultRow::energy, "one is of runs on a device that measures it"}})
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end() &&
        std::none_of(table.rows.begin(), table.rows.end(),
                     [value](const reporting::ResultRow& row) { return (row.*value).has_value(); }))
      note(fmt::format("xformer: --columns {}: no row has one; {}", name, why));
}

int report(const ReportArguments& arguments, const ExperimentReader& experiments) {
  const auto format = static_cast<ReportFormat>(choice("--format: ", "format", arguments.format, report_formats()));
  check_named_file("--out", arguments.out);
  std::vector<reporting::PublishedValue> published;
  if (!arguments.published.empty()) published = reporting::read_published(arguments.published);
  const Path place = arguments.records.front();
  const bool alone = arguments.records.size() == 1;
  const auto page = [&](const ReportPage& made) {
    for (const auto& [option, given] : {std::pair{"--metric", !arguments.metric.empty()},
                                        {"--columns", !arguments.columns.empty()},
                                        {"--average", !arguments.average.empty()},
                                        {"--published", !arguments.published.empty()},
                                        {"--task", !arguments.selection.task.empty()},
                                        {"--duplicates", arguments.selection.duplicates != "newest"},
                                        {"--transpose", arguments.view.transpose},
                                        {"--digits", arguments.digits >= 0},
                                        {"--tests", arguments.view.tests}})
      XF_CHECK(!given, UserError, "{} is of runs; {} is a folder of experiments or an experiment that measures", option,
               place.string());
    return written(written_as(format, made), arguments);
  };
  if (alone && std::filesystem::is_directory(place))
    if (const std::vector<Path> files = experiment_files(place); !files.empty())
      return page(mission_page(place, files, arguments.folder, experiments));
  reporting::ResultOptions options{.average_over = std::nullopt};
  std::optional<ReportedExperiment> experiment;
  std::vector<RunRecord> records;
  if (alone && is_experiment(place)) {
    experiment = experiments(place, arguments.folder);
    if (!experiment->measurements.empty()) return page(measured_page(*experiment));
    if (experiment->published && arguments.published.empty()) {
      published = reporting::read_published(*experiment->published, experiment->published_name);
      options.all_published = experiment->is_whole_table();
    }
    for (const std::string& remark : experiment->remarks) note(fmt::format("xformer: {}", remark));
    keep_selected(arguments.selection, *experiment);
    if (const std::string& task = arguments.selection.task; task.empty())
      options.average_over = experiment->average_over;
    else std::erase_if(published, [&](const auto& value) { return !matches_pattern(task, value.task); });
  } else {
    XF_CHECK(arguments.folder.empty(), UserError,
             "--records is of an experiment or a folder of experiments; {} has records itself", place.string());
    records = selected_records(arguments.records, arguments.selection);
  }
  // What an experiment's file asks for, where nobody asks for anything else.
  const bool own_metric = arguments.metric.empty() && experiment, own_columns = arguments.columns.empty() && experiment;
  options.metric = judge(experiment ? experiment->records : records, own_metric ? experiment->metric : arguments.metric,
                         own_metric ? place.string() + ": metric" : "--metric");
  // Tasks of one experiment belong together; of a folder's only who reads it knows.
  if (arguments.average == "all") options.average_over = std::vector<std::string>();
  else if (!arguments.average.empty()) options.average_over = words_of(arguments.average);
  ResultTable table =
      experiment ? table_of(*experiment, published, options) : reporting::result_table(records, published, options);
  if (!experiment) table.name = "results";
  if (!arguments.average.empty()) check_average(*options.average_over, table);
  ResultView view = arguments.view;
  if (arguments.digits >= 0) view.digits = arguments.digits;
  const std::vector<std::string> wanted = words_of(arguments.columns);
  choose_columns(own_columns ? experiment->columns : wanted, own_columns ? place.string() + ": columns" : "--columns",
                 table, view);
  note_missing(wanted, table);
  return written(written_as(format, table, view), arguments);
}

}  // namespace

std::function<int()> add_report(CLI::App& program, const ExperimentReader& experiments) {
  const auto arguments = std::make_shared<ReportArguments>();
  CLI::App& command =
      *program.add_subcommand("report", "experiments, or records of runs, as tables of models and tasks");
  command
      .add_option(
          "RECORDS", arguments->records,
          "an experiment file, whose missing runs are shown, too; a folder of such files, for a page of how far "
          "all are; or records, or folders of them")
      ->required();
  command
      .add_option("--records", arguments->folder,
                  "where an experiment's records are, or those of a folder of experiments by their names; default: "
                  "results/runs/ or runs/ and its name")
      ->type_name("DIR");
  arguments->format_option =
      words(command.add_option("--format", arguments->format,
                               "latex with siunitx or plain, csv: a line for each cell, long: for each number of each "
                               "run, html: a page; else aligned text"),
            report_formats());
  std::string known;
  for (const reporting::Quantity& one : reporting::quantities()) known += one.metric.name + ", ";
  command
      .add_option("--metric", arguments->metric,
                  "in place of scores: " + known + "or another metric of the records, such as auc")
      ->type_name("NAME");
  command
      .add_option("--columns", arguments->columns,
                  "these alone, separated by commas: tasks (uea/*), published, difference, interval, average, time, "
                  "energy; and what else --metric takes, beside the scores: memory, auc")
      ->type_name("LIST");
  command
      .add_option("--average", arguments->average,
                  "a column with the mean over these tasks, or all; an experiment has that of its tasks")
      ->type_name("TASKS");
  command.add_flag("--transpose", arguments->view.transpose, "tasks below each other, models side by side");
  command.add_option("--digits", arguments->digits, "of scores, behind the point")->check(CLI::Range(0, 10));
  command.add_flag("--tests", arguments->view.tests, "print the tests behind what is bold: t, p, intervals");
  command
      .add_option("--published", arguments->published,
                  "published values to stand beside: JSON, [{\"task\", \"model\", \"value\", \"source\"}, ...]")
      ->type_name("FILE");
  add_selection(command, arguments->selection);
  command.add_option("--out", arguments->out, "write here instead of printing")->type_name("FILE");
  return [arguments, experiments] { return report(*arguments, experiments); };
}

}  // namespace xformer::cli
