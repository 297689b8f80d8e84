// What of results is shown, and how: one table for all formats that people read.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "reporting/quantities.h"
#include "reporting/result_formats.h"

namespace xformer::reporting {
namespace {

constexpr int kAverageDecimals = 2;

// How many runs most cells have; 0: there is none.
size_t usual_runs(const ResultTable& table) {
  std::map<size_t, size_t> cells;
  for (const auto& row : table.cells)
    for (const ResultCell& cell : row)
      if (!cell.runs.empty()) ++cells[cell.runs.size()];
  size_t result = 0;
  for (const auto& [runs, count] : cells)
    if (result == 0 || count >= cells[result]) result = runs;
  return result;
}

TableCell score_cell(const ResultCell& cell, const MetricSpec& metric, size_t usual) {
  TableCell shown = number_cell(cell.runs.empty() ? NAN : cell.mean, metric.decimals);
  if (!std::isnan(cell.deviation)) shown.spread = fmt::format("{:.{}f}", cell.deviation, metric.decimals);
  shown.strong = cell.supported;
  const auto runs = static_cast<int64_t>(cell.runs.size());
  if (runs > 0 && cell.runs.size() != usual)
    shown.notes.push_back(fmt::format("of {} {}", runs, runs == 1 ? "run" : "runs"));
  if (cell.escaped < runs) shown.notes.push_back(fmt::format("{} of {} above chance", cell.escaped, runs));
  if (!cell.whole()) shown.notes.push_back(missing_text(cell));
  return shown;
}

// Of several values each is told from the others by a footnote.
TableCell published_cell(const std::vector<PublishedValue>& values, int decimals) {
  TableCell shown{values.empty() ? "-" : ""};
  for (const PublishedValue& value : values) {
    const std::string text = printed(value, decimals);
    std::vector<std::string> facts;
    if (values.size() > 1) facts.push_back(place_text(value));
    if (!value.remark.empty()) facts.push_back(value.remark);
    if (!value.qualifier.empty()) facts.push_back(value.qualifier + " " + text);
    if (value.digitised) facts.emplace_back("read off a figure");
    shown.text += (shown.text.empty() ? "" : " / ") + text;
    if (values.size() > 1 && value.deviation) shown.text += " ± " + printed(*value.deviation, decimals);
    if (!facts.empty())
      shown.notes.push_back((values.size() > 1 ? text + ": " : "") + fmt::format("{}", fmt::join(facts, ", ")));
  }
  if (values.size() != 1 || !values.front().text.empty()) return shown;
  shown.value = values.front().value;
  if (values.front().deviation) shown.spread = printed(*values.front().deviation, decimals);
  return shown;
}

// "-" where there is none.
std::string interval_text(const std::optional<Interval>& interval, int decimals) {
  return interval ? fmt::format("{:.{}f} to {:.{}f}", interval->low, decimals, interval->high, decimals) : "-";
}

// Over examples, of one run; seeds tell more where there are several.
std::optional<Interval> interval_of(const ResultCell& cell, const MetricSpec& metric) {
  if (cell.runs.size() != 1) return mean_interval(cell.scores);
  const RunRecord& run = *cell.runs.front();
  if (metric.name != accuracy_metric().name || !run.test) return std::nullopt;
  const Interval share = wilson(*run.score(), std::max<int64_t>(run.test->examples, 1));
  return Interval{metric.shown(share.low), metric.shown(share.high)};
}

// What the runs of a column say under a name, and the intervals of their means; empty where there are none.
struct Beside {
  MetricSpec metric;
  std::vector<TableCell> cells, intervals;
};

Beside beside(const ResultTable& table, size_t column, const std::string& name) {
  const std::optional<MetricSpec> metric = metric_of(table, column, name);
  if (!metric) return {};
  const Quantity* const quantity = quantity_named(name);
  const bool exact = quantity != nullptr && quantity->exact;
  Beside result{*metric, {}, {}};
  bool intervals = false;
  for (const auto& row : table.cells) {
    std::vector<double> own;
    if (quantity == nullptr || quantity->has_mean_over(row[column].runs))
      for (const RunRecord* run : row[column].runs)
        if (const std::optional<Metric> value = value_of(*run, name)) own.push_back(value->value);
    TableCell& cell = result.cells.emplace_back(number_cell(mean(own), metric->decimals));
    if (own.size() > 1 && !exact) cell.spread = fmt::format("{:.{}f}", sample_deviation(own), metric->decimals);
    const std::optional<Interval> interval = exact ? std::nullopt : mean_interval(own);
    result.intervals.push_back({interval_text(interval, metric->decimals)});
    intervals |= interval.has_value();
  }
  if (!intervals) result.intervals.clear();
  return result;
}

TableCell difference_cell(const ResultCell& cell, const MetricSpec& metric) {
  const std::optional<double> apart = cell.difference();
  return apart ? TableCell{fmt::format("{:+.{}f}", *apart, metric.decimals), apart} : TableCell{"-"};
}

// Of runs of different machines, whose costs are shown; empty where they are of one kind.
std::string machines_text(const ResultTable& table) {
  std::vector<const RunRecord*> runs;
  for (const auto& row : table.cells)
    for (const ResultCell& cell : row) runs.insert(runs.end(), cell.asked.begin(), cell.asked.end());
  const std::set<std::string> machines = machines_of(runs);
  if (machines.size() < 2) return "";
  return fmt::format("costs are of {}, and compare where they are of the same", fmt::join(machines, " and "));
}

bool any(const ResultTable& table, size_t column, bool (*of)(const ResultCell&)) {
  return std::any_of(table.cells.begin(), table.cells.end(), [&](const auto& row) { return of(row[column]); });
}

bool any(const ResultTable& table, std::optional<double> ResultRow::*value) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const ResultRow& row) { return row.*value; });
}

// Of a column beside another of its label: what the runs of that reached in this one's metric. Empty where none did.
std::vector<TableCell> further_cells(const ResultTable& table, size_t column, int decimals) {
  const ResultColumn& own = table.columns[column];
  std::vector<TableCell> result;
  bool there = false;
  for (const auto& row : table.cells) {
    std::vector<double> values;
    for (size_t other = 0; other < row.size(); ++other)
      for (const RunRecord* run : row[other].runs)
        for (const MetricResult& one : run->metrics)
          if (table.columns[other].label == own.label && one.split == "test" && one.spec.name == own.metric.name &&
              one.value)
            values.push_back(one.spec.shown(*one.value));
    TableCell& cell = result.emplace_back(values.empty() ? TableCell{"-"} : number_cell(mean(values), decimals));
    if (values.size() > 1) cell.spread = fmt::format("{:.{}f}", sample_deviation(values), decimals);
    there |= !values.empty();
  }
  return there ? result : std::vector<TableCell>();
}

// Where the published values of a table are from.
std::string sources_text(const ResultTable& table) {
  std::vector<std::string> sources;
  bool deviations = false;
  const auto add_source = [&](const std::string& source) {
    if (std::find(sources.begin(), sources.end(), source) == sources.end()) sources.push_back(source);
  };
  const auto add = [&](const std::vector<PublishedValue>& values) {
    for (const PublishedValue& value : values) {
      add_source(value.source);
      if (!value.deviation_source.empty()) add_source(value.deviation_source + " (±)");
      else deviations |= value.deviation.has_value();
    }
  };
  for (size_t row = 0; row < table.rows.size(); ++row) {
    for (const ResultCell& cell : table.cells[row]) add(cell.published);
    add(table.rows[row].published_average);
  }
  if (sources.empty()) return "";
  return fmt::format("Published: {}{}.", fmt::join(sources, "; "), deviations ? " (± as printed there)" : "");
}

// What marks of cells call chance, or their absence does; "" where no metric has one to be above.
std::string chance_text(const ResultTable& table) {
  bool shares = false, others = false;
  for (const auto& row : table.cells)
    for (size_t column = 0; column < row.size(); ++column) {
      const auto runs = static_cast<int64_t>(row[column].runs.size());
      if (table.columns[column].metric.name == accuracy_metric().name) shares |= runs > 0;
      else others |= row[column].escaped < runs;
    }
  if (!shares) return others ? "Above chance: better than the constant answer." : "";
  return fmt::format("Above chance: the 95 % interval of a run's accuracy lies above the constant answer's{}.",
                     others ? "; in another metric, better than that" : "");
}

// How the intervals that are shown were made.
std::string how_intervals(const ResultTable& table) {
  bool one = false, several = false;
  for (const auto& row : table.cells)
    for (size_t column = 0; column < row.size(); ++column)
      if (!row[column].runs.empty() && interval_of(row[column], table.columns[column].metric))
        (row[column].runs.size() == 1 ? one : several) = true;
  std::vector<std::string> ways;
  if (one) ways.emplace_back("of one run's accuracy over its test examples (Wilson)");
  if (several) ways.emplace_back("of a mean over seeds, by Student's t, which says nothing of other examples");
  return ways.empty() ? "" : fmt::format("95 % interval: {}.", fmt::join(ways, "; "));
}

std::string legend(const ResultTable& table, const ResultView& view, size_t usual, bool averages) {
  std::vector<std::string> said;
  if (!table.run_columns().empty())
    said.push_back(
        usual == 0 ? "No run has a score yet."
        : usual == 1
            ? "One run each, where no mark says otherwise."
            : fmt::format("Mean ± sample standard deviation over {} seeds, where no mark says otherwise.", usual));
  if (!table.tests.empty())
    said.emplace_back(
        "Bold: the best of its column where a paired t test over common seeds, adjusted by Holm, tells it from every "
        "other model there (p < 0.05).");
  if (const std::string chance = chance_text(table); table.quantity.empty() && !chance.empty()) said.push_back(chance);
  if (const std::string intervals = how_intervals(table); view.interval && !intervals.empty())
    said.push_back(intervals);
  if (averages && !table.averaged.empty())
    said.push_back(fmt::format("Average: over {}.", fmt::join(table.averaged, ", ")));
  if (const std::string sources = sources_text(table); !sources.empty()) said.push_back(sources);
  return fmt::format("{}", fmt::join(said, " "));
}

void add_column(Table& shown, const TableColumn& column, const std::vector<TableCell>& cells) {
  shown.columns.push_back(column);
  for (size_t row = 0; row < cells.size(); ++row) shown.rows[row].push_back(cells[row]);
}

}  // namespace

std::string missing_text(const ResultCell& cell) {
  if (cell.asked.empty()) return "no record";
  if (!cell.waits_for.empty()) return "waits for " + cell.waits_for;
  std::map<std::string, int64_t> endings;
  if (cell.missing > 0) endings["without record"] = cell.missing;
  const char* const unmeasured = cell.several_machines ? "of different machines" : "not measured";
  for (const RunRecord* run : cell.failed) ++endings[run->completed() ? unmeasured : run->status];
  std::vector<std::string> parts;
  for (const auto& [status, count] : endings) parts.push_back(fmt::format("{} {}", count, status));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string unit_text(const MetricSpec& metric) {
  if (metric.unit.empty()) return metric.title;
  // "% of FMM's memory" says as little as "%" of what the share is.
  return metric.unit.starts_with("%") && metric.name != accuracy_metric().name ? metric.heading() : metric.unit;
}

std::string cell_text(const ResultCell& cell, const MetricSpec& metric) {
  const TableCell shown = score_cell(cell, metric, cell.runs.size());
  return shown.text + (shown.spread.empty() ? "" : " ± " + shown.spread);
}

Table shown(const ResultTable& table, const ResultView& view) {
  Table result{.title = table.title, .name = table.name};
  result.columns.push_back({.label = "model", .numbers = false});
  for (const ResultRow& row : table.rows) result.rows.push_back({{row.label}});
  const size_t usual = usual_runs(table);
  const auto each = [&](const auto& make) {
    std::vector<TableCell> cells;
    for (size_t row = 0; row < table.rows.size(); ++row) cells.push_back(make(row));
    return cells;
  };
  const std::vector<size_t> with_runs = table.run_columns();
  // Of publications alone nothing is missing.
  const auto of_runs = [&](size_t row) {
    return std::any_of(table.cells[row].begin(), table.cells[row].end(),
                       [](const ResultCell& cell) { return !cell.asked.empty(); });
  };
  for (size_t column = 0; column < table.columns.size(); ++column) {
    const std::string& label = table.columns[column].label;
    MetricSpec metric = table.columns[column].metric;
    metric.decimals = view.digits.value_or(metric.decimals);
    const std::string unit = unit_text(metric);
    const auto add = [&](const std::string& what, const auto& make) {
      add_column(result, {.label = what, .unit = unit, .group = with_runs.empty() ? "" : label},
                 each([&](size_t row) { return make(table.cells[row][column]); }));
    };
    if (std::find(with_runs.begin(), with_runs.end(), column) != with_runs.end())
      add_column(result, {.label = label, .unit = unit, .group = label}, each([&](size_t row) {
                   return of_runs(row) ? score_cell(table.cells[row][column], metric, usual) : TableCell{"-"};
                 }));
    else if (const std::vector<TableCell> cells = further_cells(table, column, metric.decimals); !cells.empty())
      add_column(result, {.label = label, .unit = unit, .group = label}, cells);
    const TableColumn interval{.label = "95 % interval", .unit = unit, .group = label, .numbers = false};
    const auto has_interval = [&](const auto& row) { return interval_of(row[column], metric).has_value(); };
    if (view.interval && std::any_of(table.cells.begin(), table.cells.end(), has_interval))
      add_column(result, interval, each([&](size_t row) {
                   return TableCell{interval_text(interval_of(table.cells[row][column], metric), metric.decimals)};
                 }));
    if (view.published && any(table, column, [](const ResultCell& cell) { return !cell.published.empty(); }))
      add(with_runs.empty() ? label : "published",
          [&](const ResultCell& cell) { return published_cell(cell.published, metric.decimals); });
    if (view.difference && any(table, column, [](const ResultCell& cell) { return cell.difference().has_value(); }))
      add("difference", [&](const ResultCell& cell) { return difference_cell(cell, metric); });
    for (const std::string& name : view.beside) {
      const Beside further = beside(table, column, name);
      if (further.cells.empty()) continue;
      const std::string own = further.metric.title;
      add_column(result, {.label = own, .unit = further.metric.unit, .group = label}, further.cells);
      if (view.interval && !further.intervals.empty())
        add_column(result, {"95 % interval of the " + own, further.metric.unit, label, /*numbers=*/false},
                   further.intervals);
    }
  }
  const auto add = [&](const TableColumn& column, std::optional<double> ResultRow::*value, int decimals) {
    if (any(table, value))
      add_column(result, column, each([&](size_t row) { return number_cell(table.rows[row].*value, decimals); }));
  };
  const int decimals = view.digits.value_or(kAverageDecimals);
  const size_t without_average = result.columns.size();
  if (view.average) add({.label = "average", .unit = "%", .group = "average"}, &ResultRow::average, decimals);
  const bool published_averages = std::any_of(table.rows.begin(), table.rows.end(),
                                              [](const ResultRow& row) { return !row.published_average.empty(); });
  if (view.average && view.published && published_averages)
    add_column(result, {.label = "published", .unit = "%", .group = "average"},
               each([&](size_t row) { return published_cell(table.rows[row].published_average, decimals); }));
  const size_t before = result.columns.size();
  for (const auto& [wanted, name, value] :
       {std::tuple{view.time, "time", &ResultRow::time}, std::tuple{view.energy, "energy", &ResultRow::energy}})
    if (const MetricSpec& metric = find_quantity(name).metric; wanted && table.quantity != name)
      add({.label = metric.title, .unit = metric.unit}, value, metric.decimals);
  result.notes.push_back(legend(table, view, usual, before > without_average));
  if (result.columns.size() > before)
    result.notes.back() += table.columns.size() > 1 ? " Cost: of one run of every task, the mean over seeds."
                                                    : " Cost: of one run, the mean over seeds.";
  std::vector<std::string> warnings = table.warnings;
  const auto costs = [](const std::string& name) {
    const Quantity* const quantity = quantity_named(name);
    return quantity != nullptr && quantity->of_machine;
  };
  const bool beside_costs = std::any_of(view.beside.begin(), view.beside.end(), costs);
  if (result.columns.size() > before || costs(table.quantity) || beside_costs)
    if (const std::string machines = machines_text(table); !machines.empty())
      warnings.insert(warnings.begin(), machines);
  for (const std::string& warning : warnings) result.notes.push_back("Warning: " + warning + ".");
  return view.transpose ? transposed(result) : result;
}

Table shown_tests(const ResultTable& table) {
  Table result{.title = "The best of each column against every other model: paired t tests over common seeds",
               .name = table.name + "-tests"};
  result.columns = {{.label = "task", .numbers = false},
                    {.label = "best", .numbers = false},
                    {.label = "other", .numbers = false},
                    {.label = "difference"},
                    {.label = "95 % from"},
                    {.label = "to"},
                    {.label = "t"},
                    {.label = "degrees of freedom"},
                    {.label = "p"},
                    {.label = "p by Holm"}};
  for (const SeedTest& one : table.tests) {
    const ResultColumn& column = table.columns[one.column];
    const int decimals = column.metric.decimals;
    auto& row = result.rows.emplace_back(std::vector<TableCell>{
        {column.label + ", " + unit_text(column.metric)}, {table.rows[one.best].label}, {table.rows[one.other].label}});
    const bool possible = one.test.degrees >= 1;
    for (const double value : {one.test.difference, one.test.low, one.test.high})
      row.push_back(number_cell(value, decimals));
    row.push_back(number_cell(one.test.t, 3));
    row.push_back(possible ? number_cell(static_cast<double>(one.test.degrees), 0) : TableCell{"-"});
    row.push_back(number_cell(one.test.p, 4));
    row.push_back(number_cell(one.adjusted_p, 4));
    if (!possible) row.back().notes = {one.test.degrees < 0 ? "no test: no common seed" : "no test: 1 common seed"};
    else if (std::isnan(one.test.p)) row.back().notes = {"no test: the same difference in every seed"};
  }
  return result;
}

Table shown_comparisons(const ResultTable& table) {
  Table result{.title = "Models over tasks: Wilcoxon's signed ranks of their means", .name = table.name + "-ranks"};
  result.columns = {{.label = "model", .numbers = false},
                    {.label = "other", .numbers = false},
                    {.label = "tasks that differ"},
                    {.label = "p"},
                    {.label = "p by Holm"},
                    {.label = "least possible p"}};
  for (const ModelComparison& one : table.comparisons)
    result.rows.push_back({{table.rows[one.one].label},
                           {table.rows[one.other].label},
                           number_cell(static_cast<double>(one.test.pairs), 0),
                           number_cell(one.test.p, 4),
                           number_cell(one.adjusted_p, 4),
                           number_cell(one.test.least_p, 4)});
  return result;
}

}  // namespace xformer::reporting
