// `xformer report`: an experiment, or records of runs, as a table of models and tasks.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/printed.h"
#include "core/error.h"
#include "core/json_file.h"
#include "core/names.h"
#include "core/text.h"
#include "reporting/bench_comparison.h"
#include "reporting/quantities.h"
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

enum class Format { kMarkdown, kLatex, kLatexPlain, kCsv, kLong, kJson, kHtml };
const std::vector<std::string> kFormats{"markdown", "latex", "latex-plain", "csv", "long", "json", "html"};

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

// "mrsformer-table-9" of experiments/mrsformer/table-9.json.
std::string short_name(const Path& experiment) {
  const Path whole = std::filesystem::absolute(experiment);
  return whole.parent_path().filename().string() + "-" + whole.stem().string();
}

// What --columns leaves: tasks by pattern, and of what stands beside them all, or those that it names.
void choose_columns(const std::string& list, ResultTable& table, ResultView& view) {
  if (list.empty()) return;
  const std::vector<std::pair<std::string, bool ResultView::*>> kMore{{"published", &ResultView::published},
                                                                      {"difference", &ResultView::difference},
                                                                      {"average", &ResultView::average},
                                                                      {"time", &ResultView::time},
                                                                      {"energy", &ResultView::energy}};
  for (const auto& [name, shown] : kMore) view.*shown = false;
  std::vector<std::string> tasks;
  for (const std::string& word : words_of(list)) {
    const auto more = std::find_if(kMore.begin(), kMore.end(), [&](const auto& one) { return one.first == word; });
    if (more == kMore.end()) tasks.push_back(word);
    else view.*more->second = true;
  }
  if (!tasks.empty()) keep_columns(table, tasks);
}

// Reports of an experiment that measures, beside its published ratios.
std::string measured(const ReportedExperiment& experiment, Format format) {
  XF_CHECK(format != Format::kLong && format != Format::kHtml, UserError,
           "--format {}: of an experiment that measures there are markdown, latex, latex-plain, csv and json",
           kFormats[static_cast<size_t>(format)]);
  XF_CHECK(experiment.published, UserError,
           "{}: it has no published values to stand beside; its tables are {}/bench-*.md", experiment.file.string(),
           experiment.folder.string());
  std::vector<reporting::Table> tables;
  for (int64_t i = 0; i < experiment.measurements; ++i) {
    const Path path = experiment.folder / fmt::format("bench-{}.json", i + 1);
    XF_CHECK(std::filesystem::exists(path), DataError, "{}: not measured yet: there is no {}", experiment.file.string(),
             path.string());
    const Json report = read_json_file(path);
    const std::string source = fmt::format("Ours: {}, commit {}.", report.value("command", ""),
                                           report["software"].value("commit", "").substr(0, 12));
    const auto rows = reporting::compare_bench(report, *experiment.published, experiment.published_name);
    const auto scales = reporting::compare_scales(report);
    const bool to_softmax = std::any_of(rows.begin(), rows.end(), [](const reporting::BenchRow& row) {
      return row.speed || row.saving || row.published_speed || row.published_saving;
    });
    const size_t before = tables.size();
    if (to_softmax || scales.empty()) tables.push_back(shown(rows));
    if (!scales.empty()) tables.push_back(shown(scales));
    for (size_t j = before; j < tables.size(); ++j) {
      tables[j].title = experiment.title;
      tables[j].name = fmt::format("{}-{}", short_name(experiment.file), j + 1);
      tables[j].notes = {source};
    }
  }
  for (const std::string& sentence : reporting::published_sentences(*experiment.published, experiment.published_name))
    tables.back().notes.push_back(sentence);
  std::string text;
  if (format == Format::kCsv) {
    for (size_t i = 0; i < tables.size(); ++i) text += (i > 0 ? "\n" : "") + as_csv(tables[i]);
    return text;
  }
  if (format == Format::kMarkdown) {
    text = fmt::format("# {}\n\n", experiment.title);
    for (const std::string& note : experiment.notes) text += fmt::format("- {}\n", note);
    if (!experiment.notes.empty()) text += "\n";
    for (size_t i = 0; i < tables.size(); ++i) text += (i > 0 ? "\n" : "") + as_markdown(tables[i]);
    return text;
  }
  Json all = Json::array();
  for (const reporting::Table& table : tables) {
    all.push_back(as_json(table));
    text += as_latex(table, format == Format::kLatex ? LatexNumbers::kSiunitx : LatexNumbers::kPlain);
  }
  return format == Format::kJson ? all.dump(2) + "\n" : text;
}

std::string written_as(Format format, const ResultTable& table, const ResultView& view) {
  switch (format) {
    case Format::kLatex:
      return as_latex(table, LatexNumbers::kSiunitx, view);
    case Format::kLatexPlain:
      return as_latex(table, LatexNumbers::kPlain, view);
    case Format::kCsv:
      return as_csv(table);
    case Format::kLong:
      return as_long_csv(table);
    case Format::kJson:
      return as_json(table).dump(2) + "\n";
    case Format::kHtml:
      return as_html(table, view);
    case Format::kMarkdown:
      break;
  }
  return as_markdown(table, view);
}

int report(const ReportArguments& arguments, const ExperimentReader& experiments) {
  const auto format = static_cast<Format>(choice("--format: ", "format", arguments.format, kFormats));
  if (!arguments.metric.empty()) static_cast<void>(reporting::find_quantity(arguments.metric));
  std::vector<reporting::PublishedValue> published;
  if (!arguments.published.empty()) published = reporting::read_published(arguments.published);
  std::optional<ReportedExperiment> experiment;
  std::vector<RunRecord> records;
  reporting::ResultOptions options{.metric = arguments.metric, .average_over = std::nullopt};
  if (arguments.records.size() == 1 && is_experiment(arguments.records.front())) {
    experiment = experiments(arguments.records.front(), arguments.folder);
    if (experiment->measurements > 0) return written(measured(*experiment, format), arguments);
    if (experiment->published && arguments.published.empty())
      published = reporting::read_published(*experiment->published, experiment->published_name);
    if (!experiment->remark.empty()) fmt::print(stderr, "xformer: {}\n", experiment->remark);
    records = experiment->records;
    XF_CHECK(!records.empty(), UserError, "{}: all its runs wait for names that are not there yet",
             arguments.records.front());
    options.average_over = experiment->average_over;
  } else {
    records = selected_records(arguments.records, arguments.selection);
  }
  // Tasks of one experiment belong together; of a folder's only who reads it knows.
  if (arguments.average == "all") options.average_over = std::vector<std::string>();
  else if (!arguments.average.empty()) options.average_over = words_of(arguments.average);
  ResultTable table = reporting::result_table(records, published, options);
  table.name = "results";
  if (experiment) {
    table.title = experiment->title;
    table.notes = experiment->notes;
    table.name = short_name(experiment->file);
  }
  ResultView view = arguments.view;
  if (arguments.digits >= 0) view.digits = arguments.digits;
  choose_columns(arguments.columns, table, view);
  return written(written_as(format, table, view), arguments);
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
      words(command.add_option("--format", arguments->format,
                               "latex with siunitx or plain, csv: a line for each cell, long: for each number of each "
                               "run, html: a page; else aligned text"),
            kFormats);
  std::vector<std::string> quantities;
  for (const reporting::Quantity& one : reporting::quantities()) quantities.push_back(one.metric.name);
  words(command.add_option("--metric", arguments->metric, "in place of scores"), quantities);
  command
      .add_option("--columns", arguments->columns,
                  "these alone, separated by commas: tasks (uea/*), published, difference, average, time, energy")
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
