#include "reporting/result_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "reporting/record_selection.h"

namespace xformer::reporting {
namespace {

constexpr double kSignificant = 0.05, kOtherSize = 0.1;

double shown_score(const RunRecord& run) { return run.headline("test")->spec.shown(*run.score()); }

bool escaped_chance(const RunRecord& run) {
  const MetricResult& test = *run.headline("test");
  if (!test.chance) return false;
  if (test.spec.unit != "%") return Metric{test.spec, *test.value}.better_than(*test.chance);
  const Interval interval = wilson(*test.value, run.test ? std::max<int64_t>(run.test->examples, 1) : 1);
  return test.spec.higher_is_better ? interval.low > *test.chance : interval.high < *test.chance;
}

bool has_options(const RunRecord& run, const Json& options) {
  return std::all_of(options.items().begin(), options.items().end(), [&](const auto& option) {
    return run.plan.contains(option.key()) && run.plan[option.key()] == option.value();
  });
}

std::vector<double> scores_of(const ResultCell& cell) {
  std::vector<double> result;
  for (const RunRecord* run : cell.runs) result.push_back(shown_score(*run));
  return result;
}

// Over the seeds that both have.
double paired_p(const ResultCell& one, const ResultCell& other) {
  std::vector<double> left, right;
  for (const RunRecord* run : one.runs)
    for (const RunRecord* same : other.runs)
      if (run->seed == same->seed) {
        left.push_back(shown_score(*run));
        right.push_back(shown_score(*same));
      }
  return paired_t(left, right).p;
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
  std::vector<double> p;
  for (const size_t row : there)
    if (row != best) p.push_back(paired_p(winner, table.cells[row][column]));
  if (std::any_of(p.begin(), p.end(), [](double one) { return std::isnan(one); })) return;  // too few common seeds
  const std::vector<double> adjusted = holm(p);
  winner.supported = std::all_of(adjusted.begin(), adjusted.end(), [](double one) { return one < kSignificant; });
}

void warn_of_sizes(ResultTable& table, size_t column) {
  std::map<int64_t, std::string> sizes;
  for (size_t row = 0; row < table.rows.size(); ++row)
    for (const RunRecord* run : table.cells[row][column].runs)
      if (run->parameters) sizes.emplace(*run->parameters, table.rows[row].label);
  if (sizes.empty()) return;
  const auto& [least, small] = *sizes.begin();
  const auto& [most, large] = *sizes.rbegin();
  if (static_cast<double>(most) > (1 + kOtherSize) * static_cast<double>(least))
    table.warnings.push_back(fmt::format("{}: models differ in size: {} has {} parameters, {} {}",
                                         table.columns[column].label, small, least, large, most));
}

void compare_models(ResultTable& table) {
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

bool is_of(const PublishedValue& value, const MetricSpec& metric) {
  return value.metric.empty() || metric.name.empty() || value.metric == metric.name;
}

// The mean over tasks as papers print it.
void average(ResultRow& row, const std::vector<ResultCell>& cells, const std::vector<PublishedValue>& published,
             const std::vector<ResultColumn>& columns, const std::vector<std::string>& tasks) {
  std::vector<size_t> counted;
  for (size_t column = 0; column < columns.size(); ++column)
    if (tasks.empty() || std::find(tasks.begin(), tasks.end(), columns[column].task) != tasks.end())
      counted.push_back(column);
  if (counted.empty() ||
      std::any_of(counted.begin(), counted.end(), [&](size_t column) { return columns[column].metric.unit != "%"; }))
    return;
  const bool whole = std::all_of(counted.begin(), counted.end(), [&](size_t column) {
    return !cells[column].runs.empty() && cells[column].failed.empty() && cells[column].missing == 0;
  });
  if (whole) {
    double sum = 0;
    for (const size_t column : counted) sum += cells[column].mean;
    row.average = sum / static_cast<double>(counted.size());
  }
  for (const ResultCell& cell : cells)
    if (cell.published)
      for (const PublishedValue& value : published)
        if (value.task == "average" && value.model == cell.published->model &&
            value.options == cell.published->options && is_of(value, columns[counted.front()].metric))
          row.published_average = value.value;
}

size_t place_of(const std::string& label, std::vector<std::string>& labels) {
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (found != labels.end()) return static_cast<size_t>(found - labels.begin());
  labels.push_back(label);
  return labels.size() - 1;
}

}  // namespace

std::vector<PublishedValue> read_published(const Path& path, const std::string& experiment) {
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  const std::string expected = "expected [{\"task\", \"model\", \"value\", \"source\"}, ...]";
  XF_CHECK(json.is_array(), DataError, "{}: {}", path.string(), expected);
  std::vector<PublishedValue> result;
  for (size_t i = 0; i < json.size(); ++i) {
    const Json& one = json[i];
    const auto text = [&](const char* key) { return one.contains(key) && one[key].is_string(); };
    XF_CHECK(one.is_object() && text("task") && text("model") && text("source") && one.contains("value") &&
                 one["value"].is_number(),
             DataError, "{}: entry {}: {}", path.string(), i, expected);
    if (!experiment.empty() && one.value("experiment", "") != experiment) continue;
    PublishedValue value{one["task"], one["model"], one["source"], one["value"]};
    value.metric = one.value("metric", "");
    for (const auto& [key, option] : one.items())
      if (key.find('.') != std::string::npos) value.options[key] = option;
    result.push_back(std::move(value));
  }
  return result;
}

ResultTable result_table(const std::vector<RunRecord>& records, const std::vector<PublishedValue>& published,
                         const std::vector<std::string>& average_over) {
  std::vector<std::string> columns, rows;
  struct Found {
    size_t row, column;
    const RunRecord* record;
  };
  const std::vector<RecordLabel> labels = labels_of(records);
  ResultTable table;
  std::vector<Found> found;
  for (size_t i = 0; i < records.size(); ++i) {
    const RunRecord& record = records[i];
    const size_t column = place_of(labels[i].column, columns);
    found.push_back({place_of(labels[i].row, rows), column, &record});
    if (column == table.columns.size()) table.columns.push_back({columns.back(), record.task});
    // A run that was tested tells the metric for certain; others as their task is known without its files.
    MetricSpec& metric = table.columns[column].metric;
    if (const MetricResult* const test = record.headline("test");
        test != nullptr && (test->value || metric.name.empty()))
      metric = test->spec;
  }
  for (const std::string& row : rows) table.rows.push_back({row, {}, {}});
  table.cells.assign(rows.size(), std::vector<ResultCell>(columns.size()));
  for (const auto& [row, column, record] : found) {
    ResultCell& cell = table.cells[row][column];
    for (const PublishedValue& value : published)
      if (value.task == record->task && (value.model == record->model || value.model == record->name) &&
          has_options(*record, value.options) && is_of(value, table.columns[column].metric))
        cell.published = value;
    if (record->path.empty()) {
      ++cell.missing;
      continue;
    }
    for (const RunRecord* other : cell.runs)
      XF_CHECK(other->seed != record->seed, UserError, "seed {} of {} on {} is there twice: {} and {}", record->seed,
               rows[row], columns[column], other->path.string(), record->path.string());
    (record->score() && record->completed() ? cell.runs : cell.failed).push_back(record);
  }
  for (auto& row : table.cells)
    for (ResultCell& cell : row) {
      std::sort(cell.runs.begin(), cell.runs.end(),
                [](const RunRecord* a, const RunRecord* b) { return a->seed < b->seed; });
      const std::vector<double> scores = scores_of(cell);
      cell.mean = mean(scores);
      cell.deviation = sample_deviation(scores);
      cell.escaped =
          std::count_if(cell.runs.begin(), cell.runs.end(), [](const RunRecord* run) { return escaped_chance(*run); });
    }
  for (size_t column = 0; column < columns.size(); ++column) {
    mark_best(table, column);
    warn_of_sizes(table, column);
  }
  for (size_t row = 0; row < rows.size(); ++row)
    if (columns.size() > 1) average(table.rows[row], table.cells[row], published, table.columns, average_over);
  compare_models(table);
  return table;
}

}  // namespace xformer::reporting
