// Records as a table of models and tasks: what runs over seeds gave, what is published, and which differences tests
// support. result_formats.h writes it.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "reporting/published.h"
#include "reporting/run_records.h"
#include "reporting/statistics.h"

namespace xformer::reporting {

// Scores are as the column's metric is shown.
struct ResultCell {
  std::vector<const RunRecord*> asked;         // all below; none where only publications have something
  std::vector<const RunRecord*> runs, failed;  // that have a score, by seed; and the others
  std::vector<double> scores;                  // of the runs
  int64_t missing = 0;                         // wanted and not there
  std::string waits_for;                       // names that are not there yet, of runs that wait for them
  double mean = NAN, deviation = NAN;          // NaN: no run; fewer than two
  int64_t escaped = 0;                         // runs whose 95 % interval, or score, lies beyond the constant answer
  std::vector<PublishedValue> published;       // several where publications disagree
  bool several_machines = false;               // costs of different ones, which have no mean, are in `failed`
  bool best = false;                           // of its column
  bool supported = false;  // a paired t test over seeds, adjusted by Holm, tells it from every other model there
  [[nodiscard]] bool whole() const { return !runs.empty() && runs.size() == asked.size(); }
  [[nodiscard]] std::optional<double> difference() const;  // from the first published value
};

// The mean of a quantity (quantities.h) over a cell's runs; none where one of them lacks it, or where it is of a
// machine and they are of several kinds.
[[nodiscard]] std::optional<double> mean_of(const ResultCell& cell, const std::string& quantity);

struct ResultColumn {
  std::string label, task;
  MetricSpec metric{"", "score", "", true, 2};  // where nothing tells what the task is judged by
};
struct ResultRow {
  std::string label = {};
  // Over the columns of the average: only where every cell of those is whole.
  std::optional<double> average = {};
  std::vector<PublishedValue> published_average = {};
  // Of one run of every column, means over seeds: minutes and kJ, where all are known.
  std::optional<double> time = {}, energy = {};
};

// The best model of a column against another one: paired t over the seeds that both have.
struct SeedTest {
  size_t column = 0, best = 0, other = 0;
  PairedT test;           // of best - other
  double adjusted_p = 0;  // Holm, over the tests of the column; NaN as p is of fewer than two common seeds
};

// Over the columns that both models have, at least kLeastColumns: Wilcoxon's signed ranks of their means.
struct ModelComparison {
  size_t one = 0, other = 0;  // rows
  SignedRanks test;
  double adjusted_p = 0;  // Holm, over all pairs
};
inline constexpr size_t kLeastColumns = 6;

struct ResultTable {
  std::string title, name;         // of an experiment: its title, and what LaTeX's label calls it
  std::vector<std::string> notes;  // what differs from the paper
  std::string quantity;            // what is shown in place of scores; "": scores
  std::vector<ResultColumn> columns;
  std::vector<ResultRow> rows;
  std::vector<std::vector<ResultCell>> cells;  // by row and column
  std::vector<SeedTest> tests;
  std::vector<ModelComparison> comparisons;
  std::vector<std::string> averaged;  // labels of the columns of the average
  std::vector<std::string> warnings;
  // In whose columns runs are or are wanted: the others have what publications alone measured.
  [[nodiscard]] std::vector<size_t> run_columns() const;
};

struct ResultOptions {
  std::string metric = {};  // a quantity's name (quantities.h); "": what each task is judged by
  // Tasks to average over, if they are judged by one metric; none named: all. nullopt: no average.
  std::optional<std::vector<std::string>> average_over = std::vector<std::string>{};
  // Published values of no run, too, in rows and columns of their own.
  bool all_published = false;
};

// Of a record that stands for a run which waits: its message names what for.
inline constexpr const char* kWaiting = "waiting";

// A column is a task under its data options, a row a model under its own, named by what differs, in the order of the
// records. Records outlive the table; one without a path is a run that is wanted and not there, or waits. A seed that
// occurs twice in a cell is a UserError with both files. A column of which no record knows its metric has that of its
// published values.
[[nodiscard]] ResultTable result_table(const std::vector<RunRecord>& records,
                                       const std::vector<PublishedValue>& published, const ResultOptions& options = {});

// A quantity by its name, or the metric of it that tests of the runs of a column have (quantities.h).
[[nodiscard]] std::optional<MetricSpec> metric_of(const ResultTable& table, size_t column, const std::string& name);

// Leaves the columns whose label or task a pattern fits ("uea/*"), in the order of the patterns. Averages and the
// comparison of models stay those of the whole table. UserError of a pattern that fits none; `origin` is who asks.
void keep_columns(ResultTable& table, const std::vector<std::string>& patterns,
                  const std::string& origin = "--columns");

}  // namespace xformer::reporting
