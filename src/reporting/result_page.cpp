// A table of results as one page that needs nothing else: it opens from a file, without a network.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reporting/rank_plot.h"
#include "reporting/result_table.h"
#include "reporting/svg_plot.h"

namespace xformer::reporting {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Results</title>
<style>
body { font-family: Helvetica, Arial, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; font-family: monospace; }
th { cursor: pointer; border-bottom: 2px solid #444; user-select: none; }
th[aria-sort=ascending]::after { content: " \25b2"; }
th[aria-sort=descending]::after { content: " \25bc"; }
td small { color: #555; display: block; }
.missing { color: #a33; }
svg { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; }
</style>
</head>
<body>
<h1>Results</h1>
)";

// A click sorts by that column, another turns it around; cells without a number stay at the end.
constexpr const char* kScript = R"(<script>
"use strict";
for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => {
    const table = head.closest("table"), column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[column].dataset.value;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const one = key(a), other = key(b);
      if (one === "" || other === "") return (one === "") - (other === "");
      const order = column === 0 ? one.localeCompare(other) : Number(one) - Number(other);
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  });
}
</script>
</body>
</html>
)";

std::string section_name(const RunRecord& run, size_t number) { return fmt::format("run-{}-{}", number, run.seed); }

// Every run of the table once, in its order.
std::vector<const RunRecord*> runs_of(const ResultTable& table) {
  std::vector<const RunRecord*> result;
  for (const auto& row : table.cells)
    for (const ResultCell& cell : row)
      for (const auto* list : {&cell.runs, &cell.failed}) result.insert(result.end(), list->begin(), list->end());
  return result;
}

std::string curve_of(const RunRecord& run) {
  const MetricResult* const headline = run.headline("dev");
  if (headline == nullptr || !run.dev || run.dev->size() < 2) return "";
  Plot plot;
  plot.title = fmt::format("{} on {}, seed {}", run.called(), run.task, run.seed);
  plot.x.label = "step";
  plot.y.label = "dev " + headline->spec.heading();
  PlotSeries series{run.called(), {}};
  for (const EvaluationPoint& point : *run.dev)
    if (const auto value = point.value(headline->spec.name); value && point.step)
      series.points.push_back({.x = static_cast<double>(*point.step), .y = headline->spec.shown(*value)});
  plot.series.push_back(series);
  return as_svg(plot);
}

// ", test 63.20 %", or "" where there is none.
std::string score_words(const RunRecord& run) {
  if (!run.score()) return "";
  const MetricSpec& metric = run.headline("test")->spec;
  return fmt::format(", test {}{}{}", metric.text(*run.score()), metric.unit.empty() ? "" : " ",
                     escaped_xml(metric.unit));
}

}  // namespace

std::string as_html(const ResultTable& table) {
  const std::vector<const RunRecord*> runs = runs_of(table);
  std::map<const RunRecord*, std::string> sections;
  for (size_t i = 0; i < runs.size(); ++i) sections[runs[i]] = section_name(*runs[i], i);
  std::string page = kHead;
  page += "<table>\n<thead><tr><th>model</th>";
  for (const ResultColumn& column : table.columns)
    page += fmt::format("<th>{}, {}</th>", escaped_xml(column.label), escaped_xml(unit_text(column.metric)));
  page += "</tr></thead>\n<tbody>\n";
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const std::string name = escaped_xml(table.rows[row].label);
    page += fmt::format("<tr><td data-value=\"{}\">{}</td>", name, name);
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const ResultCell& cell = table.cells[row][column];
      std::vector<std::string> links;
      for (const auto* list : {&cell.runs, &cell.failed})
        for (const RunRecord* run : *list)
          links.push_back(fmt::format("<a href=\"#{}\">{}</a>", sections[run], run->seed));
      const std::string text = escaped_xml(cell_text(cell, table.columns[column].metric));
      page += fmt::format("<td data-value=\"{}\"{}>{}", cell.runs.empty() ? "" : fmt::format("{}", cell.mean),
                          cell.runs.empty() ? " class=\"missing\"" : "", cell.supported ? "<b>" + text + "</b>" : text);
      if (const std::string published = published_text(cell, table.columns[column].metric); !published.empty())
        page += fmt::format("<small title=\"{}\">published {}</small>", escaped_xml(cell.published->source), published);
      if (!links.empty()) page += fmt::format("<small>seeds {}</small>", fmt::join(links, " "));
      page += "</td>";
    }
    page += "</tr>\n";
  }
  page += fmt::format("</tbody>\n</table>\n<p>{}</p>\n", escaped_xml(legend()));
  for (const std::string& warning : table.warnings) page += fmt::format("<p>Warning: {}.</p>\n", escaped_xml(warning));
  if (!table.comparisons.empty()) page += "<h2>Wilcoxon's signed ranks over tasks</h2>\n<ul>\n";
  for (const ModelComparison& one : table.comparisons)
    page += fmt::format("<li>{}</li>\n", escaped_xml(comparison_text(table, one)));
  if (!table.comparisons.empty()) page += "</ul>\n";
  const std::vector<double> ranks = mean_ranks(table);
  const auto ranked = std::count_if(ranks.begin(), ranks.end(), [](double rank) { return !std::isnan(rank); });
  if (table.columns.size() >= kLeastColumns && ranked >= 2) page += rank_plot_svg(table);
  page += "<h2>Runs</h2>\n";
  for (const RunRecord* run : runs) {
    page += fmt::format("<section id=\"{}\">\n<h3>{} on {}, seed {}</h3>\n", sections[run], escaped_xml(run->called()),
                        escaped_xml(run->task), run->seed);
    page += fmt::format("<p>{}{}; commit {}, data {}</p>\n<pre>{}</pre>\n", escaped_xml(run->status), score_words(*run),
                        escaped_xml(run->commit().substr(0, 12)),
                        escaped_xml(run->data ? run->data->sha256.substr(0, 12) : ""), escaped_xml(run->command));
    page += curve_of(*run);
    page += fmt::format("<details><summary>configuration</summary><pre>{}</pre></details>\n</section>\n",
                        escaped_xml(run->plan.dump(2)));
  }
  return page + kScript;
}

}  // namespace xformer::reporting
