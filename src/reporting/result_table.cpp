#include "reporting/result_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/names.h"
#include "reporting/published_cells.h"
#include "reporting/quantities.h"
#include "reporting/record_selection.h"

namespace xformer::reporting {
namespace {

constexpr double kSignificant = 0.05, kOtherSize = 0.1;

// `metric`: of its column; what a run reached in another one is no score there.
std::optional<double> score_of(const RunRecord& run, const Quantity* quantity, const MetricSpec& metric) {
  if (!run.completed()) return std::nullopt;
  if (quantity != nullptr) return quantity->of(run);
  if (!run.score() || run.headline("test")->spec.name != metric.name) return std::nullopt;
  return metric.shown(*run.score());
}

bool escaped_chance(const RunRecord& run) {
  const MetricResult& test = *run.headline("test");
  if (!test.chance) return false;
  if (test.spec.name != accuracy_metric().name) return Metric{test.spec, *test.value}.better_than(*test.chance);
  const Interval interval = wilson(*test.value, run.test ? std::max<int64_t>(run.test->examples, 1) : 1);
  return test.spec.higher_is_better ? interval.low > *test.chance : interval.high < *test.chance;
}

// Over the seeds that both have.
PairedT paired(const ResultCell& one, const ResultCell& other) {
  std::vector<double> left, right;
  for (size_t i = 0; i < one.runs.size(); ++i)
    for (size_t j = 0; j < other.runs.size(); ++j)
      if (one.runs[i]->seed == other.runs[j]->seed) {
        left.push_back(one.scores[i]);
        right.push_back(other.scores[j]);
      }
  return paired_t(left, right);
}

void mark_best(ResultTable& table, size_t column) {
  const MetricSpec& metric = table.columns[column].metric;
  std::vector<size_t> there;
  for (size_t row = 0; row < table.rows.size(); ++row)
    if (!table.cells[row][column].runs.empty()) there.push_back(row);
  if (there.size() < 2) return;
  const auto value = [&](size_t row) { return table.cells[row][column].mean; };
  const size_t best = *std::min_element(there.begin(), there.end(), [&](size_t a, size_t b) {
    return Metric{metric, value(a)}.better_than(value(b));
  });
  ResultCell& winner = table.cells[best][column];
  winner.best = true;
  if (!table.quantity.empty() && find_quantity(table.quantity).exact) return;
  std::vector<double> p;
  std::vector<SeedTest> tests;
  for (const size_t row : there) {
    if (row == best) continue;
    tests.push_back({column, best, row, paired(winner, table.cells[row][column]), 0});
    if (!std::isnan(tests.back().test.p)) p.push_back(tests.back().test.p);
  }
  const std::vector<double> adjusted = holm(p);
  auto next = adjusted.begin();
  for (SeedTest& one : tests) one.adjusted_p = std::isnan(one.test.p) ? one.test.p : *next++;
  // Of too few common seeds with one of them nothing is told from all.
  winner.supported =
      std::all_of(tests.begin(), tests.end(), [](const SeedTest& one) { return one.adjusted_p < kSignificant; });
  table.tests.insert(table.tests.end(), tests.begin(), tests.end());
}

// One sentence for all columns: the smallest and the largest model of each that has some apart.
void warn_of_sizes(ResultTable& table) {
  std::vector<std::string> apart;
  for (size_t column = 0; column < table.columns.size(); ++column) {
    std::map<int64_t, std::string> sizes;
    for (size_t row = 0; row < table.rows.size(); ++row)
      for (const RunRecord* run : table.cells[row][column].runs)
        if (run->parameters) sizes.emplace(*run->parameters, table.rows[row].label);
    if (sizes.empty()) continue;
    const auto& [least, small] = *sizes.begin();
    const auto& [most, large] = *sizes.rbegin();
    if (static_cast<double>(most) > (1 + kOtherSize) * static_cast<double>(least))
      apart.push_back(
          fmt::format("{} ({} has {} parameters, {} {})", table.columns[column].label, small, least, large, most));
  }
  if (!apart.empty())
    table.warnings.push_back(
        fmt::format("models differ in size on {}; `--metric parameters` shows all", fmt::join(apart, ", ")));
}

void compare_models(ResultTable& table) {
  if (!table.quantity.empty() && find_quantity(table.quantity).exact) return;
  std::vector<double> p;
  for (size_t one = 0; one < table.rows.size(); ++one)
    for (size_t other = one + 1; other < table.rows.size(); ++other) {
      std::vector<double> left, right;
      for (size_t column = 0; column < table.columns.size(); ++column) {
        const ResultCell &a = table.cells[one][column], &b = table.cells[other][column];
        if (a.runs.empty() || b.runs.empty()) continue;
        const double sign = table.columns[column].metric.higher_is_better ? 1 : -1;  // larger is better
        left.push_back(sign * a.mean);
        right.push_back(sign * b.mean);
      }
      if (left.size() < kLeastColumns) continue;
      table.comparisons.push_back({one, other, wilcoxon(left, right), 0});
      p.push_back(table.comparisons.back().test.p);
    }
  const std::vector<double> adjusted = holm(p);
  for (size_t i = 0; i < adjusted.size(); ++i) table.comparisons[i].adjusted_p = adjusted[i];
}

// The columns that papers' means over tasks are of; none where they are not judged by one metric.
std::vector<size_t> averaged_columns(const ResultTable& table, const ResultOptions& options) {
  std::vector<size_t> result;
  const std::vector<size_t> with_runs = table.run_columns();
  if (!options.average_over || with_runs.size() < 2) return result;
  const std::vector<std::string>& tasks = *options.average_over;
  for (const size_t column : with_runs)
    if (tasks.empty() || std::find(tasks.begin(), tasks.end(), table.columns[column].task) != tasks.end())
      result.push_back(column);
  const bool shares = std::all_of(result.begin(), result.end(),
                                  [&](size_t column) { return table.columns[column].metric.unit == "%"; });
  return shares ? result : std::vector<size_t>();
}

void average(ResultTable& table, size_t row, const std::vector<size_t>& counted) {
  const std::vector<ResultCell>& cells = table.cells[row];
  if (!std::all_of(counted.begin(), counted.end(), [&](size_t column) { return cells[column].whole(); })) return;
  double sum = 0;
  for (const size_t column : counted) sum += cells[column].mean;
  table.rows[row].average = sum / static_cast<double>(counted.size());
}

// Of a run of every column: the sum of the means over seeds.
std::optional<double> cost(const ResultTable& table, size_t row, const std::string& quantity) {
  std::optional<double> sum;
  for (const size_t column : table.run_columns()) {
    const std::optional<double> own = mean_of(table.cells[row][column], quantity);
    if (!own) return std::nullopt;
    sum = sum.value_or(0) + *own;
  }
  return sum;
}

size_t place_of(const std::string& label, std::vector<std::string>& labels) {
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (found != labels.end()) return static_cast<size_t>(found - labels.begin());
  labels.push_back(label);
  return labels.size() - 1;
}

}  // namespace

std::optional<double> mean_of(const ResultCell& cell, const std::string& quantity) {
  const Quantity& measured = find_quantity(quantity);
  if (!measured.has_mean_over(cell.runs)) return std::nullopt;
  std::vector<double> values;
  for (const RunRecord* run : cell.runs)
    if (const auto value = measured.of(*run)) values.push_back(*value);
  return values.empty() || values.size() < cell.runs.size() ? std::nullopt : std::optional(mean(values));
}

std::optional<double> ResultCell::difference() const {
  if (runs.empty() || published.empty() || !published.front().text.empty()) return std::nullopt;
  return mean - published.front().value;
}

std::vector<size_t> ResultTable::run_columns() const {
  std::vector<size_t> result;
  for (size_t column = 0; column < columns.size(); ++column)
    if (std::any_of(cells.begin(), cells.end(), [&](const auto& row) { return !row[column].asked.empty(); }))
      result.push_back(column);
  return result;
}

ResultTable result_table(const std::vector<RunRecord>& records, const std::vector<PublishedValue>& published,
                         const ResultOptions& options) {
  const Quantity* const quantity = options.metric.empty() ? nullptr : &find_quantity(options.metric);
  std::vector<std::string> columns, rows;
  std::vector<std::pair<std::string, std::vector<std::string>>> unsaid;  // with the columns where it holds
  struct Found {
    size_t row, column;
    const RunRecord* record;
  };
  const std::vector<RecordLabel> labels = labels_of(records);
  ResultTable table;
  table.quantity = options.metric;
  std::vector<Found> found;
  for (size_t i = 0; i < records.size(); ++i) {
    const RunRecord& record = records[i];
    const size_t column = place_of(labels[i].column, columns);
    if (!labels[i].unsaid.empty()) {
      auto known =
          std::find_if(unsaid.begin(), unsaid.end(), [&](const auto& one) { return one.first == labels[i].unsaid; });
      if (known == unsaid.end()) known = unsaid.insert(known, {labels[i].unsaid, {}});
      static_cast<void>(place_of(labels[i].column, known->second));
    }
    found.push_back({place_of(labels[i].row, rows), column, &record});
    if (column == table.columns.size()) table.columns.push_back({columns.back(), record.task});
    // A run that was tested tells the metric for certain; others as their task is known without its files.
    MetricSpec& metric = table.columns[column].metric;
    if (const MetricResult* const test = record.headline("test");
        test != nullptr && (test->value || metric.name.empty()))
      metric = test->spec;
  }
  for (ResultColumn& column : table.columns) {
    for (const PublishedValue& value : published)
      if (column.metric.name.empty() && value.task == column.task && !value.metric.empty())
        column.metric = published_metric(value);
    if (quantity != nullptr) column.metric = quantity->metric;
  }
  for (const std::string& row : rows) table.rows.push_back({.label = row});
  if (!unsaid.empty()) {
    std::vector<std::string> said;
    for (const auto& [settings, where] : unsaid)
      said.push_back(columns.size() == 1 ? settings : fmt::format("{} on {}", settings, fmt::join(where, " and ")));
    table.notes.push_back(fmt::format("Where a row says nothing else: {}.", fmt::join(said, "; ")));
  }
  table.cells.assign(rows.size(), std::vector<ResultCell>(columns.size()));
  for (const auto& [row, column, record] : found) {
    ResultCell& cell = table.cells[row][column];
    cell.asked.push_back(record);
    if (record->path.empty()) {
      if (record->status == kWaiting) cell.waits_for = record->message;
      else ++cell.missing;
      continue;
    }
    for (const RunRecord* other : cell.runs)
      XF_CHECK(other->seed != record->seed, UserError, "seed {} of {} on {} is there twice: {} and {}", record->seed,
               rows[row], columns[column], other->path.string(), record->path.string());
    (score_of(*record, quantity, table.columns[column].metric) ? cell.runs : cell.failed).push_back(record);
  }
  for (auto& row : table.cells)
    for (size_t column = 0; column < columns.size(); ++column) {
      ResultCell& cell = row[column];
      cell.several_machines = quantity != nullptr && !quantity->has_mean_over(cell.runs);
      if (cell.several_machines) {
        cell.failed.insert(cell.failed.end(), cell.runs.begin(), cell.runs.end());
        cell.runs.clear();
      }
      std::sort(cell.runs.begin(), cell.runs.end(),
                [](const RunRecord* a, const RunRecord* b) { return a->seed < b->seed; });
      for (const RunRecord* run : cell.runs)
        cell.scores.push_back(*score_of(*run, quantity, table.columns[column].metric));
      cell.mean = mean(cell.scores);
      cell.deviation = sample_deviation(cell.scores);
      cell.escaped = std::count_if(cell.runs.begin(), cell.runs.end(),
                                   [&](const RunRecord* run) { return quantity != nullptr || escaped_chance(*run); });
    }
  if (quantity == nullptr) {
    std::vector<PublishedValue> placed = published;
    // Of a part of a printed table nothing stands beside the average over all of it.
    if (!options.all_published && averaged_columns(table, options).empty())
      std::erase_if(placed, [](const PublishedValue& value) { return value.task == kAverage; });
    place_published(table, placed, options.all_published);
  }
  for (size_t column = 0; column < table.columns.size(); ++column) mark_best(table, column);
  warn_of_sizes(table);
  const std::vector<size_t> counted = averaged_columns(table, options);
  for (const size_t column : counted) table.averaged.push_back(table.columns[column].label);
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (!counted.empty()) average(table, row, counted);
    table.rows[row].time = cost(table, row, "time");
    table.rows[row].energy = cost(table, row, "energy");
  }
  compare_models(table);
  return table;
}

std::optional<MetricSpec> metric_of(const ResultTable& table, size_t column, const std::string& name) {
  for (const auto& row : table.cells)
    for (const RunRecord* run : row[column].asked)
      if (const std::optional<MetricSpec> metric = metric_of(*run, name)) return metric;
  return std::nullopt;
}

void keep_columns(ResultTable& table, const std::vector<std::string>& patterns, const std::string& origin) {
  std::vector<size_t> kept;
  std::vector<std::string> known;
  for (const ResultColumn& column : table.columns) known.push_back(column.label);
  for (const Quantity& one : quantities()) known.push_back(one.metric.name);
  for (const std::string& pattern : patterns) {
    bool fits = false;
    for (size_t column = 0; column < table.columns.size(); ++column) {
      if (!matches_pattern(pattern, table.columns[column].label) &&
          !matches_pattern(pattern, table.columns[column].task))
        continue;
      fits = true;
      if (std::find(kept.begin(), kept.end(), column) == kept.end()) kept.push_back(column);
    }
    XF_CHECK(fits, UserError, "{}: {}", origin, unknown_name_message("column", pattern, known));
  }
  const auto chosen = [&](const auto& all) {
    std::decay_t<decltype(all)> result;
    for (const size_t column : kept) result.push_back(all[column]);
    return result;
  };
  table.columns = chosen(table.columns);
  for (auto& row : table.cells) row = chosen(row);
  std::vector<SeedTest> tests;
  for (const SeedTest& one : table.tests)
    if (const auto place = std::find(kept.begin(), kept.end(), one.column); place != kept.end()) {
      tests.push_back(one);
      tests.back().column = static_cast<size_t>(place - kept.begin());
    }
  table.tests = std::move(tests);
}

}  // namespace xformer::reporting
