// Results as Markdown, LaTeX, CSV and JSON.
#include "reporting/result_formats.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reporting/quantities.h"

namespace xformer::reporting {
namespace {

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

// But for those where a row or a column of publications alone has nothing.
template <class Action>
void for_each_cell(const ResultTable& table, const Action& action) {
  const std::vector<size_t> with_runs = table.run_columns();
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const std::vector<ResultCell>& cells = table.cells[row];
    const bool of_runs =
        std::any_of(cells.begin(), cells.end(), [](const ResultCell& cell) { return !cell.asked.empty(); });
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const bool has_runs = of_runs && std::find(with_runs.begin(), with_runs.end(), column) != with_runs.end();
      if (has_runs || !cells[column].published.empty())
        action(table.rows[row].label, table.columns[column], cells[column], row, column);
    }
  }
}

// "" of what is not there.
std::string number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? fmt::format("{}", rounded(*value)) : "";
}

Json json_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(rounded(*value)) : Json();
}

template <class Text>
std::string of_each(const std::vector<PublishedValue>& published, const Text& text) {
  std::vector<std::string> texts;
  for (const PublishedValue& one : published) texts.push_back(text(one));
  const bool said = std::any_of(texts.begin(), texts.end(), [](const std::string& one) { return !one.empty(); });
  return said ? fmt::format("{}", fmt::join(texts, "; ")) : "";
}

std::string sources_of(const std::vector<PublishedValue>& published) {
  return of_each(published, [](const PublishedValue& one) {
    return place_text(one) + (one.remark.empty() ? "" : ", " + one.remark) +
           (one.qualifier.empty() ? "" : ", " + one.qualifier);
  });
}

std::string values_of(const std::vector<PublishedValue>& published) {
  return of_each(published, [](const PublishedValue& one) { return one.text.empty() ? number(one.value) : one.text; });
}

std::string deviations_of(const std::vector<PublishedValue>& published) {
  return of_each(published, [](const PublishedValue& one) { return number(one.deviation); });
}

Json json_of(const PublishedValue& value) {
  Json result{{"value", json_number(value.value)}, {"source", place_text(value)}};
  if (value.deviation) result["deviation"] = json_number(value.deviation);
  for (const auto& [key, text] :
       {std::pair{"text", value.text}, {"qualifier", value.qualifier}, {"remark", value.remark}})
    if (!text.empty()) result[key] = text;
  if (value.digitised) result["digitised"] = true;
  return result;
}

// The first under this name, those that disagree with it under "also_" and the name; nothing where there are none.
void add_published(const std::string& name, const std::vector<PublishedValue>& published, Json& into) {
  for (const PublishedValue& value : published)
    if (!into.contains(name)) into[name] = json_of(value);
    else into["also_" + name].push_back(json_of(value));
}

std::string csv_line(std::vector<std::string> fields) {
  for (std::string& field : fields) field = csv_field(field);
  return fmt::format("{}\n", fmt::join(fields, ","));
}

const SeedTest* test_of(const ResultTable& table, size_t row, size_t column) {
  const auto found = std::find_if(table.tests.begin(), table.tests.end(),
                                  [&](const SeedTest& one) { return one.other == row && one.column == column; });
  return found == table.tests.end() ? nullptr : &*found;
}

Json json_of(const ResultTable& table, const SeedTest& one) {
  return {{"task", table.columns[one.column].label},
          {"best", table.rows[one.best].label},
          {"other", table.rows[one.other].label},
          {"unit", unit_text(table.columns[one.column].metric)},
          {"difference", json_number(one.test.difference)},
          {"low", json_number(one.test.low)},
          {"high", json_number(one.test.high)},
          {"t", json_number(one.test.t)},
          {"degrees_of_freedom", std::max<int64_t>(0, one.test.degrees)},
          {"p", json_number(one.test.p)},
          {"holm_p", json_number(one.adjusted_p)}};
}

Json json_of(const RunRecord& run, const std::optional<double>& score) {
  Json result{{"record", run.path.string()}, {"status", run.status}, {"seed", run.seed}, {"score", json_number(score)}};
  for (const Quantity& quantity : quantities()) result[quantity.metric.name] = json_number(quantity.of(run));
  result["commit"] = run.commit();
  result["data_sha256"] = run.data ? run.data->sha256 : "";
  result["command"] = run.command;
  return result;
}

}  // namespace

std::string as_markdown(const ResultTable& table, const ResultView& view) {
  std::string text;
  if (!table.title.empty()) text = "# " + table.title + "\n\n";
  for (const std::string& note : table.notes) text += "- " + note + "\n";
  if (!table.notes.empty()) text += "\n";
  text += as_markdown(shown(table, view));
  if (view.tests)
    for (const Table& tests : {shown_tests(table), shown_comparisons(table)})
      if (!tests.rows.empty()) text += "\n" + tests.title + ":\n\n" + as_markdown(tests);
  constexpr std::string_view kRecords = "\nRecords:\n\n";
  text += kRecords;
  for_each_cell(table,
                [&](const std::string& model, const ResultColumn& column, const ResultCell& cell, size_t, size_t) {
                  if (!cell.runs.empty())
                    text += fmt::format("- `{}`, {}: {}{}\n", model, column.label, source_text(cell),
                                        cell.published.empty() ? "" : "; published: " + sources_of(cell.published));
                });
  for_each_cell(table,
                [&](const std::string& model, const ResultColumn& column, const ResultCell& cell, size_t, size_t) {
                  for (const RunRecord* run : cell.failed)
                    text += fmt::format("- `{}`, {}, seed {}: {}{}\n", model, column.label, run->seed,
                                        run->completed() ? "not measured" : run->status,
                                        run->message.empty() ? "" : ": " + run->message);
                });
  if (text.ends_with(kRecords)) text.resize(text.size() - kRecords.size());  // of none
  return text;
}

std::string as_latex(const ResultTable& table, LatexNumbers numbers, const ResultView& view) {
  Table own = shown(table, view);
  if (own.title.empty()) own.title = "Results";
  own.notes.insert(own.notes.end(), table.notes.begin(), table.notes.end());
  std::string text = as_latex(own, numbers);
  if (view.tests)
    for (const Table& tests : {shown_tests(table), shown_comparisons(table)})
      if (!tests.rows.empty()) text += "\n" + as_latex(tests, numbers);
  return text;
}

std::string as_csv(const ResultTable& table) {
  std::string text =
      "model,task,unit,mean,deviation,runs,above_chance,best,supported,published,published_deviation,difference,"
      "published_source,missing,best_minus_this,low,high,t,degrees_of_freedom,p,holm_p,time_min,energy_kj,records\n";
  const auto width = static_cast<size_t>(std::count(text.begin(), text.end(), ',') + 1);
  for_each_cell(table, [&](const std::string& model, const ResultColumn& column, const ResultCell& cell, size_t row,
                           size_t place) {
    std::vector<std::string> paths;
    for (const RunRecord* run : cell.runs) paths.push_back(run->path.string());
    std::vector<std::string> fields{model,
                                    column.label,
                                    unit_text(column.metric),
                                    number(cell.mean),
                                    number(cell.deviation),
                                    std::to_string(cell.runs.size()),
                                    std::to_string(cell.escaped),
                                    cell.best ? "1" : "0",
                                    cell.supported ? "1" : "0",
                                    values_of(cell.published),
                                    deviations_of(cell.published),
                                    number(cell.difference()),
                                    sources_of(cell.published),
                                    cell.whole() ? "" : missing_text(cell)};
    const SeedTest* const test = test_of(table, row, place);
    for (const double value :
         test == nullptr ? std::vector<double>(7, NAN)
                         : std::vector<double>{test->test.difference, test->test.low, test->test.high, test->test.t,
                                               static_cast<double>(std::max<int64_t>(0, test->test.degrees)),
                                               test->test.p, test->adjusted_p})
      fields.push_back(number(value));
    for (const char* quantity : {"time", "energy"}) fields.push_back(number(mean_of(cell, quantity)));
    fields.push_back(fmt::format("{}", fmt::join(paths, ";")));
    text += csv_line(fields);
  });
  for (const ResultRow& row : table.rows) {
    if (!row.average && row.published_average.empty()) continue;
    std::vector<std::string> fields{row.label, kAverage, "%", number(row.average), "", "", "", "", ""};
    for (const auto& of : {values_of, deviations_of}) fields.push_back(of(row.published_average));
    fields.insert(fields.end(), {"", sources_of(row.published_average)});
    fields.resize(width);  // of the means of means there is no more
    text += csv_line(fields);
  }
  return text;
}

std::string as_long_csv(const ResultTable& table) {
  std::string text = "model,task,seed,split,metric,value,unit,record\n";
  for_each_cell(table,
                [&](const std::string& model, const ResultColumn& column, const ResultCell& cell, size_t, size_t) {
                  for (const auto* list : {&cell.runs, &cell.failed})
                    for (const RunRecord* run : *list) {
                      const auto add = [&](const std::string& split, const std::string& metric, double value,
                                           const std::string& unit) {
                        text += csv_line({model, column.label, std::to_string(run->seed), split, metric, number(value),
                                          unit, run->path.string()});
                      };
                      for (const MetricResult& one : run->metrics)
                        if (one.value) add(one.split, one.spec.name, one.spec.shown(*one.value), one.spec.unit);
                      for (const Quantity& quantity : quantities())
                        if (const auto value = quantity.of(*run))
                          add("train", quantity.metric.name, *value, quantity.metric.unit);
                    }
                });
  return text;
}

Json as_json(const ResultTable& table) {
  Json rows = Json::array(), cells = Json::array(), tests = Json::array(), comparisons = Json::array();
  for (const ResultRow& row : table.rows) {
    Json entry{{"model", row.label}, {"average", json_number(row.average)}};
    add_published("published_average", row.published_average, entry);
    entry["time_min"] = json_number(row.time);
    entry["energy_kj"] = json_number(row.energy);
    rows.push_back(entry);
  }
  for_each_cell(table,
                [&](const std::string& model, const ResultColumn& column, const ResultCell& cell, size_t, size_t) {
                  Json runs = Json::array();
                  for (size_t i = 0; i < cell.runs.size(); ++i) runs.push_back(json_of(*cell.runs[i], cell.scores[i]));
                  for (const RunRecord* run : cell.failed) runs.push_back(json_of(*run, std::nullopt));
                  Json entry{{"model", model},
                             {"task", column.label},
                             {"unit", unit_text(column.metric)},
                             {"mean", json_number(cell.mean)},
                             {"deviation", json_number(cell.deviation)},
                             {"above_chance", cell.escaped},
                             {"best", cell.best},
                             {"supported", cell.supported},
                             {"runs", runs}};
                  add_published("published", cell.published, entry);
                  if (!cell.published.empty()) entry["difference"] = json_number(cell.difference());
                  if (!cell.whole()) entry["missing"] = missing_text(cell);
                  cells.push_back(entry);
                });
  for (const SeedTest& one : table.tests) tests.push_back(json_of(table, one));
  for (const ModelComparison& one : table.comparisons)
    comparisons.push_back({{"models", {table.rows[one.one].label, table.rows[one.other].label}},
                           {"p", rounded(one.test.p)},
                           {"holm_p", rounded(one.adjusted_p)},
                           {"least_p", rounded(one.test.least_p)},
                           {"tasks", one.test.pairs}});
  return {{"title", table.title}, {"notes", table.notes}, {"averaged", table.averaged}, {"rows", rows},
          {"cells", cells},       {"tests", tests},       {"comparisons", comparisons}, {"warnings", table.warnings}};
}

}  // namespace xformer::reporting
