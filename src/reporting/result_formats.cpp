// A table of results as Markdown, LaTeX, CSV and JSON.
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <set>

#include "reporting/result_table.h"

namespace xformer::reporting {
namespace {

constexpr int kAverageDecimals = 2;

// Of a value in the metric's unit.
std::string value_text(double value, const MetricSpec& metric) {
  return fmt::format("{:.{}f}", value, metric.decimals);
}

// Why a cell has no number: "no record", or how its runs ended.
std::string missing_reason(const ResultCell& cell) {
  if (cell.failed.empty() && cell.runs.empty() && cell.missing <= 1) return "no record";
  std::map<std::string, int64_t> endings;
  if (cell.missing > 0) endings["without record"] = cell.missing;
  for (const RunRecord* run : cell.failed) ++endings[run->status];
  std::vector<std::string> parts;
  for (const auto& [status, count] : endings) parts.push_back(count > 1 ? fmt::format("{} {}", count, status) : status);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::optional<double> difference(const ResultCell& cell) {
  if (!cell.published || cell.runs.empty()) return std::nullopt;
  return cell.mean - cell.published->value;
}

bool any_published(const ResultTable& table, size_t column) {
  return std::any_of(table.cells.begin(), table.cells.end(),
                     [&](const auto& row) { return row[column].published.has_value(); });
}

// What the runs of a cell have in common, each different value once.
std::string source_text(const ResultCell& cell) {
  std::set<std::string> commits, data, commands;
  std::vector<int64_t> seeds;
  for (const RunRecord* run : cell.runs) {
    commits.insert(run->commit().substr(0, 12));
    data.insert(run->data ? run->data->sha256.substr(0, 12) : "");
    seeds.push_back(run->seed);
  }
  return fmt::format("commit {}, data {}, seeds {}, `{}`", fmt::join(commits, " "), fmt::join(data, " "),
                     fmt::join(seeds, " "), cell.runs.front()->command);
}

std::string latex_escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (std::string_view("&%$#_{}").find(letter) != std::string_view::npos) result += '\\';
    result += letter;
  }
  return result;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char letter : text) result += letter == '"' ? "\"\"" : std::string(1, letter);
  return result + "\"";
}

}  // namespace

const std::string& unit_text(const MetricSpec& metric) { return metric.unit.empty() ? metric.title : metric.unit; }

std::string cell_text(const ResultCell& cell, const MetricSpec& metric, const char* plus_minus) {
  if (cell.runs.empty()) return missing_reason(cell);
  std::string text = value_text(cell.mean, metric);
  if (!std::isnan(cell.deviation)) text += plus_minus + value_text(cell.deviation, metric);
  text += fmt::format(" ({})", cell.runs.size());
  const auto runs = static_cast<int64_t>(cell.runs.size());
  if (cell.escaped < runs) text += fmt::format(", {} of {} above chance", cell.escaped, runs);
  if (!cell.failed.empty() || cell.missing > 0) text += ", " + missing_reason(cell);
  return text;
}

std::string published_text(const ResultCell& cell, const MetricSpec& metric) {
  if (!cell.published) return "";
  const std::string value = value_text(cell.published->value, metric);
  const std::optional<double> apart = difference(cell);
  return apart ? fmt::format("{} ({:+.{}f})", value, *apart, metric.decimals) : value;
}

std::string comparison_text(const ResultTable& table, const ModelComparison& one) {
  return fmt::format("{} and {}: p = {:.4f}, {:.4f} by Holm, over {} tasks that differ (the least possible is {:.4f})",
                     table.rows[one.one].label, table.rows[one.other].label, one.test.p, one.adjusted_p, one.test.pairs,
                     one.test.least_p);
}

bool any_average(const ResultTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [](const ResultRow& row) { return row.average || row.published_average; });
}

std::string legend() {
  return "Mean ± sample standard deviation over seeds (how many). Bold: the best of its column where a paired t test "
         "over "
         "common seeds, adjusted by Holm, tells it from every other model there (p < 0.05). Above chance: the 95 % "
         "interval "
         "of a run's accuracy lies above the constant answer's.";
}

std::string as_markdown(const ResultTable& table) {
  std::string text = "| model |", line = "| --- |";
  for (size_t column = 0; column < table.columns.size(); ++column) {
    text += fmt::format(" {}, {} |", table.columns[column].label, unit_text(table.columns[column].metric));
    line += " ---: |";
    if (!any_published(table, column)) continue;
    text += " published |";
    line += " ---: |";
  }
  if (any_average(table)) {
    text += " average, % | published |";
    line += " ---: | ---: |";
  }
  text += "\n" + line + "\n";
  for (size_t row = 0; row < table.rows.size(); ++row) {
    text += "| `" + table.rows[row].label + "` |";
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const ResultCell& cell = table.cells[row][column];
      const std::string shown = cell_text(cell, table.columns[column].metric, " ± ");
      text += cell.supported ? " **" + shown + "** |" : " " + shown + " |";
      if (any_published(table, column)) text += " " + published_text(cell, table.columns[column].metric) + " |";
    }
    const ResultRow& own = table.rows[row];
    if (any_average(table))
      for (const auto& average : {own.average, own.published_average})
        text += average ? fmt::format(" {:.{}f} |", *average, kAverageDecimals) : "  |";
    text += "\n";
  }
  text += fmt::format("\n{}\n", legend());
  for (const std::string& warning : table.warnings) text += "\nWarning: " + warning + ".\n";
  if (!table.comparisons.empty()) text += "\nWilcoxon's signed ranks over tasks:\n\n";
  for (const ModelComparison& one : table.comparisons) text += "- " + comparison_text(table, one) + "\n";
  text += "\nRecords:\n\n";
  for (size_t row = 0; row < table.rows.size(); ++row)
    for (size_t column = 0; column < table.columns.size(); ++column)
      if (const ResultCell& cell = table.cells[row][column]; !cell.runs.empty())
        text += fmt::format("- `{}`, {}: {}{}\n", table.rows[row].label, table.columns[column].label, source_text(cell),
                            cell.published ? "; published: " + cell.published->source : "");
  for (size_t row = 0; row < table.rows.size(); ++row)
    for (size_t column = 0; column < table.columns.size(); ++column)
      for (const RunRecord* run : table.cells[row][column].failed)
        text += fmt::format("- `{}`, {}, seed {}: {}: {}\n", table.rows[row].label, table.columns[column].label,
                            run->seed, run->status, run->message);
  return text;
}

std::string as_latex(const ResultTable& table) {
  std::string text = fmt::format("\\begin{{tabular}}{{l{}}}\n\\toprule\nmodel", std::string(table.columns.size(), 'r'));
  for (const ResultColumn& column : table.columns)
    text += fmt::format(" & {} ({})", latex_escaped(column.label), latex_escaped(unit_text(column.metric)));
  text += " \\\\\n\\midrule\n";
  for (size_t row = 0; row < table.rows.size(); ++row) {
    text += latex_escaped(table.rows[row].label);
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const ResultCell& cell = table.cells[row][column];
      const std::string shown = cell_text(cell, table.columns[column].metric, " $\\pm$ ");
      text += cell.supported ? " & \\textbf{" + shown + "}" : " & " + shown;
    }
    text += " \\\\\n";
  }
  return text + "\\bottomrule\n\\end{tabular}\n";
}

std::string as_csv(const ResultTable& table) {
  std::string text =
      "model,task,unit,mean,deviation,runs,above_chance,best,supported,published,difference,published_source,missing,"
      "records\n";
  for (size_t row = 0; row < table.rows.size(); ++row)
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const ResultCell& cell = table.cells[row][column];
      std::vector<std::string> paths;
      for (const RunRecord* run : cell.runs) paths.push_back(run->path.string());
      const auto number = [](const std::optional<double>& value) {
        return value && !std::isnan(*value) ? fmt::format("{}", *value) : "";
      };
      const std::vector<std::string> fields{
          table.rows[row].label,
          table.columns[column].label,
          unit_text(table.columns[column].metric),
          number(cell.mean),
          number(cell.deviation),
          std::to_string(cell.runs.size()),
          std::to_string(cell.escaped),
          cell.best ? "1" : "0",
          cell.supported ? "1" : "0",
          cell.published ? number(cell.published->value) : "",
          number(difference(cell)),
          cell.published ? cell.published->source : "",
          cell.runs.empty() || !cell.failed.empty() || cell.missing > 0 ? missing_reason(cell) : "",
          fmt::format("{}", fmt::join(paths, " "))};
      for (size_t i = 0; i < fields.size(); ++i) text += (i > 0 ? "," : "") + csv_field(fields[i]);
      text += "\n";
    }
  return text;
}

Json as_json(const ResultTable& table) {
  Json cells = Json::array(), comparisons = Json::array();
  const auto number = [](double value) { return std::isnan(value) ? Json() : Json(value); };
  for (size_t row = 0; row < table.rows.size(); ++row)
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const ResultCell& cell = table.cells[row][column];
      Json runs = Json::array();
      for (const auto* list : {&cell.runs, &cell.failed})
        for (const RunRecord* run : *list)
          runs.push_back({{"record", run->path.string()},
                          {"status", run->status},
                          {"seed", run->seed},
                          {"score", run->score() ? Json(*run->score()) : Json()},
                          {"commit", run->commit()},
                          {"data_sha256", run->data ? run->data->sha256 : ""},
                          {"command", run->command}});
      Json entry{{"model", table.rows[row].label},
                 {"task", table.columns[column].label},
                 {"unit", unit_text(table.columns[column].metric)},
                 {"mean", number(cell.mean)},
                 {"deviation", number(cell.deviation)},
                 {"above_chance", cell.escaped},
                 {"best", cell.best},
                 {"supported", cell.supported},
                 {"runs", runs}};
      if (cell.published) {
        entry["published"] = {{"value", cell.published->value}, {"source", cell.published->source}};
        entry["difference"] = difference(cell) ? Json(*difference(cell)) : Json();
      }
      if (cell.runs.empty()) entry["missing"] = missing_reason(cell);
      cells.push_back(entry);
    }
  for (const ModelComparison& one : table.comparisons)
    comparisons.push_back({{"models", {table.rows[one.one].label, table.rows[one.other].label}},
                           {"p", one.test.p},
                           {"holm_p", one.adjusted_p},
                           {"least_p", one.test.least_p},
                           {"tasks", one.test.pairs}});
  return {{"cells", cells}, {"comparisons", comparisons}, {"warnings", table.warnings}};
}

}  // namespace xformer::reporting
