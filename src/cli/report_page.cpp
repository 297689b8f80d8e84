#include "cli/report_page.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "cli/measurements.h"
#include "cli/printed.h"
#include "core/error.h"
#include "core/json_file.h"
#include "core/text.h"
#include "reporting/bench_comparison.h"
#include "reporting/bench_growth.h"
#include "reporting/quantities.h"
#include "reporting/record_selection.h"

namespace xformer::cli {
namespace {

using reporting::LatexNumbers;
using reporting::PublishedValue;
using reporting::ResultCell;
using reporting::ResultTable;
using reporting::ResultView;
using reporting::Table;

std::vector<PublishedValue> published_of(const ReportedExperiment& experiment) {
  return experiment.published ? reporting::read_published(*experiment.published, experiment.published_name)
                              : std::vector<PublishedValue>();
}

std::string markdown(const ReportPage& page) {
  std::string text = fmt::format("# {}\n\n", page.title);
  for (const std::string& note : page.notes) text += fmt::format("- {}\n", note);
  if (!page.notes.empty()) text += "\n";
  for (size_t i = 0; i < page.tables.size(); ++i) {
    const Table& table = page.tables[i];
    text += (i > 0 ? "\n" : "") + (table.title == page.title ? "" : fmt::format("## {}\n\n", table.title));
    text += as_markdown(table);
  }
  return text;
}

// How far an experiment is: what is there of what its table, or its measurements, need.
struct Progress {
  std::string name = {}, title = {};
  int64_t cells = 0, whole = 0, begun = 0, waiting = 0, runs = 0, runs_done = 0, published = 0;
  std::set<std::string> waits_for = {};
};

Progress progress_of(const ResultTable& table) {
  Progress result;
  for (const reporting::ResultRow& row : table.rows)
    result.published += static_cast<int64_t>(row.published_average.size());
  for (const auto& row : table.cells)
    for (const ResultCell& cell : row) {
      result.published += static_cast<int64_t>(cell.published.size());
      if (cell.asked.empty()) continue;
      ++result.cells;
      result.runs += static_cast<int64_t>(cell.asked.size());
      result.runs_done += static_cast<int64_t>(cell.runs.size());
      if (cell.whole()) ++result.whole;
      else if (!cell.runs.empty()) ++result.begun;
      if (cell.waits_for.empty()) continue;
      ++result.waiting;
      for (const std::string_view name : split(cell.waits_for, ',')) result.waits_for.emplace(trim(name));
    }
  return result;
}

Table summary_of(const std::vector<Progress>& all, const std::string& title) {
  Table table{.title = title, .name = "mission"};
  table.columns = {{.label = "experiment", .numbers = false},
                   {.label = "of", .numbers = false},
                   {.label = "cells done"},
                   {.label = "begun"},
                   {.label = "waiting"},
                   {.label = "cells"},
                   {.label = "runs done"},
                   {.label = "runs"},
                   {.label = "published values"},
                   {.label = "waits for", .numbers = false}};
  Progress sum{.name = "all"};
  const auto count = [](int64_t value) { return reporting::number_cell(static_cast<double>(value), 0); };
  const auto add = [&](const Progress& one) {
    table.rows.push_back({{one.name},
                          {one.title},
                          count(one.whole),
                          count(one.begun),
                          count(one.waiting),
                          count(one.cells),
                          count(one.runs_done),
                          count(one.runs),
                          count(one.published),
                          {fmt::format("{}", fmt::join(one.waits_for, ", "))}});
  };
  for (const Progress& one : all) {
    add(one);
    for (int64_t Progress::*part : {&Progress::cells, &Progress::whole, &Progress::begun, &Progress::waiting,
                                    &Progress::runs, &Progress::runs_done, &Progress::published})
      sum.*part += one.*part;
  }
  add(sum);
  table.notes = {
      "A cell is a model on a task, done when all its seeds are, begun when some are; of an experiment that measures, "
      "one measurement. A run counts in the experiment in whose folder its record lies, also where others ask for the "
      "same; published values count in each experiment that shows them."};
  return table;
}

}  // namespace

const std::vector<std::string>& report_formats() {
  static const std::vector<std::string> kAll{"markdown", "latex", "latex-plain", "csv", "long", "json", "html"};
  return kAll;
}

std::string short_name(const Path& experiment) {
  const Path whole = std::filesystem::absolute(experiment);
  return whole.parent_path().filename().string() + "-" + whole.stem().string();
}

std::string written_as(ReportFormat format, const ReportPage& page) {
  std::string text;
  Json all = Json::array();
  switch (format) {
    case ReportFormat::kLatex:
    case ReportFormat::kLatexPlain:
      for (const Table& table : page.tables)
        text += as_latex(table, format == ReportFormat::kLatex ? LatexNumbers::kSiunitx : LatexNumbers::kPlain);
      return text;
    case ReportFormat::kCsv:
      for (size_t i = 0; i < page.tables.size(); ++i) text += (i > 0 ? "\n" : "") + as_csv(page.tables[i]);
      return text;
    case ReportFormat::kJson:
      for (const Table& table : page.tables) all.push_back(as_json(table));
      return all.dump(2) + "\n";
    case ReportFormat::kHtml:
      return reporting::as_html(page.title, page.notes, page.tables);
    case ReportFormat::kLong:
      throw UserError("--format long is of runs; of measurements and of a folder of experiments there are the others");
    case ReportFormat::kMarkdown:
      break;
  }
  return markdown(page);
}

std::string judge(std::vector<RunRecord>& records, const std::string& metric, const std::string& origin) {
  if (metric.empty() || reporting::quantity_named(metric) != nullptr) return metric;
  records = reporting::judged_by(std::move(records), metric, origin);
  return "";
}

void choose_columns(const std::vector<std::string>& words, const std::string& origin, ResultTable& table,
                    ResultView& view) {
  if (words.empty()) return;
  const std::vector<std::pair<std::string, bool ResultView::*>> kMore{
      {"published", &ResultView::published}, {"difference", &ResultView::difference},
      {"interval", &ResultView::interval},   {"average", &ResultView::average},
      {"time", &ResultView::time},           {"energy", &ResultView::energy}};
  for (const auto& [name, shown] : kMore) view.*shown = false;
  std::vector<std::string> tasks;
  for (const std::string& word : words) {
    const auto more = std::find_if(kMore.begin(), kMore.end(), [&](const auto& one) { return one.first == word; });
    bool measured = false;
    for (size_t column = 0; column < table.columns.size(); ++column)
      measured |= metric_of(table, column, word).has_value();
    if (more != kMore.end()) view.*more->second = true;
    else if (measured) view.beside.push_back(word);
    else tasks.push_back(word);
  }
  if (!tasks.empty()) keep_columns(table, tasks, origin);
}

ResultTable table_of(const ReportedExperiment& experiment, const std::vector<PublishedValue>& published,
                     const reporting::ResultOptions& options) {
  ResultTable table = reporting::result_table(experiment.records, published, options);
  table.title = experiment.title;
  table.notes.insert(table.notes.begin(), experiment.notes.begin(), experiment.notes.end());
  table.name = short_name(experiment.file);
  return table;
}

ReportPage measured_page(const ReportedExperiment& experiment) {
  ReportPage page{experiment.title, experiment.notes, {}};
  const std::string name = short_name(experiment.file);
  const std::vector<PublishedValue> published = published_of(experiment);
  const auto add = [&](const Json& report) {
    const std::string source = fmt::format("Ours: {}, commit {}.", report.value("command", ""),
                                           report.at("software").value("commit", "").substr(0, 12));
    const auto rows = reporting::compare_bench(report, experiment.published.value_or(""), experiment.published_name);
    const auto scales = experiment.published ? reporting::compare_scales(report) : std::vector<reporting::ScalesRow>();
    const bool to_softmax = std::any_of(rows.begin(), rows.end(), [](const reporting::BenchRow& row) {
      return row.speed || row.saving || row.published_speed || row.published_saving;
    });
    const size_t before = page.tables.size();
    const bool has_published = std::any_of(rows.begin(), rows.end(), [](const reporting::BenchRow& row) {
      return row.published_speed || row.published_saving;
    });
    const auto growth =
        has_published || !scales.empty() ? std::vector<reporting::GrowthRow>() : reporting::growth_of(report);
    if (to_softmax || (scales.empty() && growth.empty())) page.tables.push_back(shown(rows));
    if (!scales.empty()) page.tables.push_back(shown(scales));
    if (!growth.empty()) page.tables.push_back(shown(growth));
    for (size_t j = before; j < page.tables.size(); ++j) {
      page.tables[j].title = experiment.title;
      page.tables[j].name = fmt::format("{}-{}", name, j + 1);
      page.tables[j].notes.push_back(source);
    }
  };
  for (size_t i = 0; i < experiment.measurements.size(); ++i) {
    const Path& path = experiment.measurements[i];
    if (!path.empty()) {
      read_bench(path.string(), read_json_file(path), add);
      continue;
    }
    const std::string own = fmt::format("bench-{}.json", i + 1);
    page.notes.push_back(fmt::format("Measurement {} of {} is not made yet: {}.", i + 1, experiment.measurements.size(),
                                     std::filesystem::exists(experiment.folder / own)
                                         ? own + " among its records is of another command"
                                         : "there is no " + own + " among its records"));
  }
  if (!published.empty()) {
    page.tables.push_back(shown(reporting::result_table({}, published, {.all_published = true}), {}));
    page.tables.back().title = "As published: " + experiment.title;
    page.tables.back().name = name + "-published";
  }
  return page;
}

ReportPage mission_page(const Path& folder, const std::vector<Path>& files, const Path& records,
                        const ExperimentReader& experiments) {
  ReportPage page{"Experiments and how much of them is done",
                  {"`xformer report FILE` shows one with what differs from its paper and the records behind it."},
                  {}};
  std::vector<Progress> all;
  for (const Path& file : files) {
    const Path name = file.lexically_relative(folder).replace_extension();
    const Path inner = std::filesystem::absolute(file).parent_path().filename() / file.stem();
    ReportedExperiment experiment = experiments(file, records.empty() ? Path() : records / inner);
    for (const std::string& remark : experiment.remarks) note(fmt::format("xformer: {}", remark));
    const std::vector<PublishedValue> published = published_of(experiment);
    Progress progress;
    std::vector<Table> tables;
    std::vector<std::string> notes;
    if (!experiment.measurements.empty()) {
      ReportPage own = measured_page(experiment);
      tables = std::move(own.tables);
      // Behind those of the experiment file.
      notes.assign(own.notes.begin() + static_cast<std::ptrdiff_t>(experiment.notes.size()), own.notes.end());
      progress.published = static_cast<int64_t>(published.size());
      progress.cells = static_cast<int64_t>(experiment.measurements.size());
      progress.whole = std::count_if(experiment.measurements.begin(), experiment.measurements.end(),
                                     [](const Path& report) { return !report.empty(); });
    } else {
      const std::string quantity = judge(experiment.records, experiment.metric, file.string() + ": metric");
      ResultTable table = table_of(
          experiment, published,
          {.metric = quantity, .average_over = experiment.average_over, .all_published = experiment.is_whole_table()});
      progress = progress_of(table);
      ResultView view;
      choose_columns(experiment.columns, file.string() + ": columns", table, view);
      tables.push_back(shown(table, view));
    }
    if (!tables.empty()) tables.back().notes.insert(tables.back().notes.end(), notes.begin(), notes.end());
    for (Table& table : tables) {
      table.title = name.string() + ": " + table.title;
      page.tables.push_back(std::move(table));
    }
    progress.name = name.string();
    progress.title = experiment.title;
    all.push_back(std::move(progress));
  }
  page.tables.insert(page.tables.begin(), summary_of(all, page.title));
  return page;
}

}  // namespace xformer::cli
