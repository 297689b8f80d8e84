// Records as a table of models and tasks: what runs over seeds gave, what is published, and which differences tests
// support.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reporting/run_records.h"
#include "reporting/statistics.h"

namespace xformer::reporting {

struct PublishedValue {
  std::string task, model, source;
  double value = 0;               // as it is shown
  Json options = Json::object();  // plan keys that a run must have for it; mostly none
  std::string metric = {};        // its name; "": the one that the task is judged by
};
// JSON: [{"task", "model", "metric", "value", "source"}, ...], without those of another "experiment" when one is named
// here. Dotted keys are options.
[[nodiscard]] std::vector<PublishedValue> read_published(const Path& path, const std::string& experiment = "");

// Scores are as the column's metric is shown.
struct ResultCell {
  std::vector<const RunRecord*> runs, failed;  // that reached their test, by seed; and the others
  int64_t missing = 0;                         // wanted and not there
  double mean = 0, deviation = 0;              // NaN: no run; fewer than two
  int64_t escaped = 0;                         // runs whose 95 % interval, or score, lies beyond the constant answer
  std::optional<PublishedValue> published;
  bool best = false;       // of its column
  bool supported = false;  // a paired t test over seeds, adjusted by Holm, tells it from every other model there
};

struct ResultColumn {
  std::string label, task;
  MetricSpec metric{"", "score", "", true, 2};  // where nothing tells what the task is judged by
};
struct ResultRow {
  std::string label;
  // Over the columns of the average: only where every cell of those has all its runs.
  std::optional<double> average, published_average;
};
// Over the columns that both models have, at least kLeastColumns: Wilcoxon's signed ranks of their means.
struct ModelComparison {
  size_t one = 0, other = 0;  // rows
  SignedRanks test;
  double adjusted_p = 0;  // Holm, over all pairs
};
inline constexpr size_t kLeastColumns = 6;

struct ResultTable {
  std::vector<ResultColumn> columns;
  std::vector<ResultRow> rows;
  std::vector<std::vector<ResultCell>> cells;  // by row and column
  std::vector<ModelComparison> comparisons;
  std::vector<std::string> warnings;
};

// A column is a task under its data options, a row a model under its own, named by what differs, in the order of the
// records. Records outlive the table; one without a path is a run that is wanted and not there. A seed that occurs
// twice in a cell is a UserError with both files. The average is over the tasks `average_over`, or all where it is
// empty, if they are judged by one metric.
[[nodiscard]] ResultTable result_table(const std::vector<RunRecord>& records,
                                       const std::vector<PublishedValue>& published,
                                       const std::vector<std::string>& average_over = {});

// What the formats share: "30.39 ± 2.06 (3)", or why there is no number; "32.00 (-1.61)", or nothing.
[[nodiscard]] std::string cell_text(const ResultCell& cell, const MetricSpec& metric, const char* plus_minus = " ± ");
[[nodiscard]] std::string published_text(const ResultCell& cell, const MetricSpec& metric);
[[nodiscard]] const std::string& unit_text(const MetricSpec& metric);  // "%", or the title of what has no unit
[[nodiscard]] std::string comparison_text(const ResultTable& table, const ModelComparison& one);
[[nodiscard]] bool any_average(const ResultTable& table);
[[nodiscard]] std::string legend();

[[nodiscard]] std::string as_markdown(const ResultTable& table);
[[nodiscard]] std::string as_latex(const ResultTable& table);  // booktabs
[[nodiscard]] std::string as_html(const ResultTable& table);   // a page, with a section for every run
[[nodiscard]] std::string as_csv(const ResultTable& table);    // a line for each cell
[[nodiscard]] Json as_json(const ResultTable& table);          // with the records behind every cell

}  // namespace xformer::reporting
