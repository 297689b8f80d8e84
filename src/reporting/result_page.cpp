// Results as one page that needs nothing else: it opens from a file, without a network.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reporting/learning_curves.h"
#include "reporting/rank_plot.h"
#include "reporting/result_formats.h"
#include "reporting/svg_plot.h"

namespace xformer::reporting {
namespace {

constexpr const char* kStyle = R"(<style>
body { font-family: Helvetica, Arial, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #111; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { white-space: normal; }
th.words, td.words { text-align: left; }
tr > :first-child { position: sticky; left: 0; background: #fff; }
td:first-child { font-family: monospace; }
p.mark { margin: .2rem 0; }
th { cursor: pointer; border-bottom: 2px solid #444; user-select: none; }
th[aria-sort=ascending]::after { content: " \25b2"; }
th[aria-sort=descending]::after { content: " \25bc"; }
td.missing { color: #a33; }
svg { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; }
</style>
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
    const words = head.classList.contains("words");
    const key = row => row.cells[column].dataset.value;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const one = key(a), other = key(b);
      if (one === "" || other === "") return (one === "") - (other === "");
      const order = words ? one.localeCompare(other) : Number(one) - Number(other);
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  });
}
</script>
</body>
</html>
)";

std::string paragraph(const std::string& text) { return "<p>" + escaped_xml(text) + "</p>\n"; }

std::string as_html(const Table& table) {
  const std::vector<std::string> notes = footnotes(table);
  std::string page = "<div class=\"scroll\">\n<table>\n<thead><tr>";
  for (const TableColumn& column : table.columns)
    page += fmt::format("<th{}>{}</th>", column.numbers ? "" : " class=\"words\"", escaped_xml(heading(column)));
  page += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    page += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const TableCell& cell = row[i];
      const bool words = !table.columns[i].numbers;
      std::string text = escaped_xml(cell.text + (cell.spread.empty() ? "" : " ± " + cell.spread));
      if (cell.strong) text = "<b>" + text + "</b>";
      if (const std::string marks = marks_of(cell, notes); !marks.empty())
        text += fmt::format(" <sup title=\"{}\">{}</sup>", escaped_xml(fmt::format("{}", fmt::join(cell.notes, "; "))),
                            marks);
      const std::string value = words        ? escaped_xml(cell.text)
                                : cell.value ? fmt::format("{}", rounded(*cell.value))
                                             : "";
      page += fmt::format("<td data-value=\"{}\"{}>{}</td>", value,
                          words                                ? " class=\"words\""
                          : !cell.value && !cell.notes.empty() ? " class=\"missing\""
                                                               : "",
                          text);
    }
    page += "</tr>\n";
  }
  page += "</tbody>\n</table>\n</div>\n";
  for (size_t i = 0; i < notes.size(); ++i)
    page += fmt::format("<p class=\"mark\"><sup>{}</sup> {}</p>\n", note_mark(i), escaped_xml(notes[i]));
  for (const std::string& note : table.notes) page += paragraph(note);
  return page;
}

// A file that the page itself holds.
std::string download(const std::string& name, const std::string& text) {
  std::string encoded;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0 || letter == '-' || letter == '.' || letter == '_') encoded += letter;
    else encoded += fmt::format("%{:02X}", byte);
  }
  return fmt::format("<a download=\"{0}\" href=\"data:text/csv;charset=utf-8,{1}\">{0}</a>", name, encoded);
}

std::string details(const Table& table) {
  if (table.rows.empty()) return "";
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", escaped_xml(table.title), as_html(table));
}

// The learning curves of a task's models, the best of them where a picture could not tell all apart.
std::string chart_of(const ResultTable& table, size_t column) {
  const ResultColumn& task = table.columns[column];
  std::vector<size_t> rows;
  for (size_t row = 0; row < table.rows.size(); ++row) rows.push_back(row);
  const auto rank = [&](size_t row) {
    const double mean = table.cells[row][column].mean;
    return std::isnan(mean) ? INFINITY : task.metric.higher_is_better ? -mean : mean;
  };
  if (rows.size() > kMostLines) {
    std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
    rows.resize(kMostLines);
  }
  std::vector<CurveRuns> models;
  for (const size_t row : rows) models.push_back({table.rows[row].label, table.cells[row][column].runs});
  Plot plot = learning_curves(task.label, models);
  const bool line = std::any_of(plot.series.begin(), plot.series.end(),
                                [](const PlotSeries& series) { return series.points.size() > 1; });
  if (!line) return "";
  if (table.rows.size() > kMostLines)
    plot.note += fmt::format(" The {} best of {} models.", kMostLines, table.rows.size());
  return as_svg(plot);
}

// ", test 63.20 %", or "" where there is none.
std::string score_words(const RunRecord& run) {
  if (!run.score()) return "";
  const MetricSpec& metric = run.headline("test")->spec;
  return fmt::format(", test {}{}{}", metric.text(*run.score()), metric.unit.empty() ? "" : " ",
                     escaped_xml(metric.unit));
}

std::string section_of(const RunRecord& run, const std::string& name) {
  return fmt::format(
      "<section id=\"{}\">\n<h3>{} on {}, seed {}</h3>\n<p>{}{}{}; commit {}, data {}</p>\n<pre>{}</pre>\n"
      "<details><summary>configuration</summary><pre>{}</pre></details>\n</section>\n",
      name, escaped_xml(run.called()), escaped_xml(run.task), run.seed, escaped_xml(run.status), score_words(run),
      escaped_xml(run.message.empty() ? "" : ": " + run.message), escaped_xml(run.commit().substr(0, 12)),
      escaped_xml(run.data ? run.data->sha256.substr(0, 12) : ""), escaped_xml(run.command),
      escaped_xml(run.plan.dump(2)));
}

std::string head_of(const std::string& title, const std::vector<std::string>& notes) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n{1}</head>\n<body>\n"
      "<h1>{0}</h1>\n",
      escaped_xml(title), kStyle);
  if (!notes.empty()) page += "<ul>\n";
  for (const std::string& note : notes) page += "<li>" + escaped_xml(note) + "</li>\n";
  if (!notes.empty()) page += "</ul>\n";
  return page;
}

}  // namespace

std::string as_html(const std::string& title, const std::vector<std::string>& notes, const std::vector<Table>& tables) {
  std::string page = head_of(title, notes);
  for (const Table& table : tables)
    page += (table.title == title ? "" : "<h2>" + escaped_xml(table.title) + "</h2>\n") + as_html(table);
  return page + kScript;
}

std::string as_html(const ResultTable& table, const ResultView& view) {
  std::string page = head_of(table.title.empty() ? "Results" : table.title, table.notes);
  page += as_html(shown(table, view));
  page += fmt::format("<p>As CSV: {}, a line for each cell; {}, a line for each number of each run.</p>\n",
                      download("results.csv", as_csv(table)), download("runs.csv", as_long_csv(table)));
  page += details(shown_tests(table)) + details(shown_comparisons(table));
  const std::vector<double> ranks = mean_ranks(table);
  const auto ranked = std::count_if(ranks.begin(), ranks.end(), [](double rank) { return !std::isnan(rank); });
  if (table.run_columns().size() >= kLeastColumns && ranked >= 2) page += rank_plot_svg(table);
  for (size_t column = 0; column < table.columns.size(); ++column) page += chart_of(table, column);
  // Every run once, by model and task, and the way to each.
  std::string sections, links;
  size_t number = 0;
  for (size_t row = 0; row < table.rows.size(); ++row)
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const ResultCell& cell = table.cells[row][column];
      std::vector<std::string> seeds;
      for (const auto* list : {&cell.runs, &cell.failed})
        for (const RunRecord* run : *list) {
          const std::string name = fmt::format("run-{}-{}", number++, run->seed);
          seeds.push_back(fmt::format("<a href=\"#{}\">{}</a>", name, run->seed));
          sections += section_of(*run, name);
        }
      if (!seeds.empty())
        links += fmt::format("<li>{}, {}{}: seeds {}</li>\n", escaped_xml(table.rows[row].label),
                             escaped_xml(table.columns[column].label),
                             cell.published.empty() ? "" : ", published: " + escaped_xml(cell.published.front().source),
                             fmt::join(seeds, " "));
    }
  page += "<h2>Runs</h2>\n";
  if (!links.empty()) page += "<ul>\n" + links + "</ul>\n";
  return page + sections + kScript;
}

}  // namespace xformer::reporting
