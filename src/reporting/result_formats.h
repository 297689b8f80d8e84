// Results in every format: one table for Markdown, LaTeX and the page; a line for each cell, or for each number of each
// run, as CSV; everything as JSON.
#pragma once

#include <optional>
#include <string>

#include "reporting/result_table.h"
#include "reporting/table.h"

namespace xformer::reporting {

// What of a table is shown.
struct ResultView {
  bool published = true, difference = true, average = true, time = true, energy = true;  // where they are known
  // 95 % intervals: Wilson's of one run's accuracy over its test examples, Student's of a mean over seeds.
  bool interval = false;
  std::vector<std::string> beside = {};  // what else of the runs stands beside their scores (value_of in quantities.h)
  bool transpose = false;                // tasks below each other
  bool tests = false;                    // the tests behind what is bold in tables of their own
  std::optional<int> digits = {};        // decimals of scores; none: the metric's
};

// Rows are models. What a cell's runs did not reach stands in its footnotes; the legend is the first of the notes.
[[nodiscard]] Table shown(const ResultTable& table, const ResultView& view);
// A row for every test over seeds, and for every pair of models over tasks. Empty where there are none.
[[nodiscard]] Table shown_tests(const ResultTable& table);
[[nodiscard]] Table shown_comparisons(const ResultTable& table);

// "%", "ROC AUC, %", "MB", or the title of what has no unit.
[[nodiscard]] std::string unit_text(const MetricSpec& metric);
// How runs without a score ended: "2 without record, 1 diverged", "waits for routing"; "no record" where nobody wanted
// one.
[[nodiscard]] std::string missing_text(const ResultCell& cell);
// "30.39 ± 2.06", or "-".
[[nodiscard]] std::string cell_text(const ResultCell& cell, const MetricSpec& metric);

// With title and notes of an experiment, and the sources of every cell.
[[nodiscard]] std::string as_markdown(const ResultTable& table, const ResultView& view = {});
[[nodiscard]] std::string as_latex(const ResultTable& table, LatexNumbers numbers, const ResultView& view = {});
// One page that needs nothing else, with a chart for each task and a section for every run.
[[nodiscard]] std::string as_html(const ResultTable& table, const ResultView& view = {});
// A page of several tables, each under its title.
[[nodiscard]] std::string as_html(const std::string& title, const std::vector<std::string>& notes,
                                  const std::vector<Table>& tables);
// A line for each cell, with the test against the best of its column, and for each average, of the task `average`.
[[nodiscard]] std::string as_csv(const ResultTable& table);
// model,task,seed,split,metric,value,unit,record: a line for each score and each quantity of each run.
[[nodiscard]] std::string as_long_csv(const ResultTable& table);
// With the records behind every cell, and all tests.
[[nodiscard]] Json as_json(const ResultTable& table);

}  // namespace xformer::reporting
