#include "reporting/bench_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "core/error.h"

namespace xformer::reporting {
namespace {

enum class Kind { kTime, kRate, kMemory, kOther };

Kind kind_of(const std::string& metric) {
  if (metric == "train_time_per_step") return Kind::kTime;
  if (metric == "steps_per_second" || metric == "speed") return Kind::kRate;
  if (metric == "peak_memory" || metric == "memory_per_device") return Kind::kMemory;
  return Kind::kOther;
}

// The value of a kind for a model with these options at a length; times as rates.
std::optional<double> published_value(const Json& entries, const std::string& experiment, bool memory,
                                      const std::string& model, const Json& own, int64_t length) {
  for (const Json& entry : entries) {
    const Kind kind = kind_of(entry.value("metric", ""));
    if (entry.value("experiment", "") != experiment || entry.value("model", "") != model || kind == Kind::kOther ||
        (kind == Kind::kMemory) != memory || entry.value("length", int64_t{0}) != length || !entry["value"].is_number())
      continue;
    const bool same = std::all_of(entry.items().begin(), entry.items().end(), [&](const auto& item) {
      return item.key().find('.') == std::string::npos || own.value(item.key(), Json()) == item.value();
    });
    if (same) return kind == Kind::kTime ? 1 / entry["value"].get<double>() : entry["value"].get<double>();
  }
  return std::nullopt;
}

std::optional<double> over(const std::optional<double>& one, const std::optional<double>& other) {
  return one && other ? std::optional(*one / *other) : std::nullopt;
}

std::optional<double> number(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_number() ? std::optional(row[key].get<double>()) : std::nullopt;
}

// Whether two rows have the same length, batch, width and precision.
bool same_sizes(const Json& a, const Json& b) {
  const auto same = [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); };
  return same("length") && same("batch") && same("width") && same("precision");
}

Json read_entries(const Path& published) {
  if (published.empty()) return Json::array();
  Json entries = Json::parse(read_file(published), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(entries.is_array(), DataError, "{}: expected a list of published values", published.string());
  return entries;
}

// The last first.
Table without_columns(Table table, std::initializer_list<std::ptrdiff_t> columns) {
  for (auto column = std::rbegin(columns); column != std::rend(columns); ++column) {
    table.columns.erase(table.columns.begin() + *column);
    for (auto& row : table.rows) row.erase(row.begin() + *column);
  }
  return table;
}

TableCell whole(int64_t value) { return number_cell(static_cast<double>(value), 0); }

}  // namespace

std::vector<BenchRow> compare_bench(const Json& report, const Path& published, const std::string& experiment) {
  XF_CHECK(report.is_object() && report.contains("rows") && report["rows"].is_array(), DataError,
           "expected what `xformer bench --json` prints");
  const Json entries = read_entries(published);
  std::vector<BenchRow> result;
  for (const Json& row : report["rows"]) {
    const std::string model = row["model"];
    BenchRow& one = result.emplace_back(
        BenchRow{row.value("label", model), row["length"], row["batch"], row["status"], {}, {}, {}, {}});
    const Json own = row.value("own", Json::object());
    for (const Json& base : report["rows"])
      if (base["model"] == "softmax" && same_sizes(base, row)) {  // the first, where there are several forms of it
        one.speed = over(number(row, "examples_per_s"), number(base, "examples_per_s"));
        one.saving = over(number(base, "peak_bytes"), number(row, "peak_bytes"));
        break;
      }
    const auto value = [&](bool memory, const std::string& name, const Json& options) {
      return published_value(entries, experiment, memory, name, options, one.length);
    };
    one.published_speed = over(value(false, model, own), value(false, "softmax", Json::object()));
    one.published_saving = over(value(true, "softmax", Json::object()), value(true, model, own));
  }
  return result;
}

Table shown(const std::vector<BenchRow>& rows) {
  Table result;
  result.columns = {{.label = "model", .numbers = false},
                    {.label = "length"},
                    {.label = "batch"},
                    {.label = "times softmax's speed", .group = "times softmax's speed"},
                    {.label = "of published values", .group = "times softmax's speed"},
                    {.label = "times less memory", .group = "times less memory"},
                    {.label = "of published values", .group = "times less memory"}};
  for (const BenchRow& row : rows) {
    auto& cells = result.rows.emplace_back(std::vector<TableCell>{{row.label}, whole(row.length), whole(row.batch)});
    for (const auto& value : {row.speed, row.published_speed, row.saving, row.published_saving})
      cells.push_back(number_cell(value, 2));
    if (row.status != "ok") cells[3].notes = {row.status};
  }
  const bool published = std::any_of(rows.begin(), rows.end(),
                                     [](const BenchRow& row) { return row.published_speed || row.published_saving; });
  return published ? result : without_columns(std::move(result), {4, 6});
}

std::vector<ScalesRow> compare_scales(const Json& report) {
  std::vector<ScalesRow> result;
  for (const Json& row : report["rows"]) {
    const std::string model = row["model"];
    for (const Json& base : report["rows"]) {
      if (model != "mrs-" + base["model"].get<std::string>() || !same_sizes(base, row)) continue;
      const auto operations = [](const Json& one) {
        return one["flops"].is_object() ? number(one["flops"], "step_counted") : std::nullopt;
      };
      const Json width = row.value("width", Json());
      result.push_back({model, width.is_null() ? std::nullopt : std::optional(width.get<int64_t>()), row["length"],
                        row["batch"], over(operations(row), operations(base)),
                        over(number(row, "peak_bytes"), number(base, "peak_bytes"))});
    }
  }
  return result;
}

Table shown(const std::vector<ScalesRow>& rows) {
  Table result;
  result.columns = {{.label = "model", .numbers = false},
                    {.label = "width"},
                    {.label = "length"},
                    {.label = "batch"},
                    {.label = "operations of those without scales", .unit = "%"},
                    {.label = "memory of that without scales", .unit = "%"}};
  const auto share = [](const std::optional<double>& value) {
    return value ? number_cell(100 * *value, 1) : TableCell{"-"};
  };
  for (const ScalesRow& row : rows)
    result.rows.push_back({{row.model},
                           row.width ? whole(*row.width) : TableCell{"-"},
                           whole(row.length),
                           whole(row.batch),
                           share(row.operations),
                           share(row.memory)});
  return result;
}

}  // namespace xformer::reporting
