#include "reporting/bench_comparison.h"

#include <fmt/format.h>

#include <algorithm>

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

std::string text(const std::optional<double>& value) { return value ? fmt::format("{:.2f}", *value) : ""; }

}  // namespace

std::vector<BenchRow> compare_bench(const Json& report, const Path& published, const std::string& experiment) {
  XF_CHECK(report.is_object() && report.contains("rows") && report["rows"].is_array(), DataError,
           "expected what `xformer bench --json` prints");
  const Json entries = Json::parse(read_file(published), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(entries.is_array(), DataError, "{}: expected a list of published values", published.string());
  const auto number = [](const Json& row, const char* key) {
    return row.contains(key) && row[key].is_number() ? std::optional(row[key].get<double>()) : std::nullopt;
  };
  std::vector<BenchRow> result;
  for (const Json& row : report["rows"]) {
    const std::string model = row["model"];
    BenchRow& one = result.emplace_back(
        BenchRow{row.value("label", model), row["length"], row["batch"], row["status"], {}, {}, {}, {}});
    const Json own = row.value("own", Json::object());
    const auto same = [&](const Json& base, const char* key) {
      return base.value(key, Json()) == row.value(key, Json());
    };
    for (const Json& base : report["rows"])
      if (base["model"] == "softmax" && same(base, "length") && same(base, "batch") && same(base, "width") &&
          same(base, "precision")) {
        one.speed = over(number(row, "examples_per_s"), number(base, "examples_per_s"));
        one.saving = over(number(base, "peak_bytes"), number(row, "peak_bytes"));
      }
    const auto value = [&](bool memory, const std::string& name, const Json& options) {
      return published_value(entries, experiment, memory, name, options, one.length);
    };
    one.published_speed = over(value(false, model, own), value(false, "softmax", Json::object()));
    one.published_saving = over(value(true, "softmax", Json::object()), value(true, model, own));
  }
  return result;
}

std::string as_markdown(const std::vector<BenchRow>& rows) {
  std::string result =
      "| model | length | batch | times softmax's speed | published | times less memory | published |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const BenchRow& row : rows)
    result += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", row.label, row.length, row.batch,
                          row.status == "ok" ? text(row.speed) : row.status, text(row.published_speed),
                          text(row.saving), text(row.published_saving));
  return result;
}

}  // namespace xformer::reporting
