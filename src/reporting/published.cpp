#include "reporting/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace xformer::reporting {
namespace {

constexpr int kMostDecimals = 6;

// Of tasks that are not there yet, and of measurements; those that are there say theirs in their records.
const std::vector<MetricSpec>& known_metrics() {
  static const std::vector<MetricSpec> kAll{accuracy_metric(),
                                            top5_metric(),
                                            rmse_metric(),
                                            {"rouge1", "ROUGE-1", "%", true, 2},
                                            {"rouge2", "ROUGE-2", "%", true, 2},
                                            {"rougeL", "ROUGE-L", "%", true, 2},
                                            {"auc", "AUC", "%", true, 2},
                                            {"f1", "F1", "%", true, 2},
                                            {"gini", "Gini", "%", true, 2},
                                            {"gini_gain", "gain in Gini", "points", true, 2},
                                            {"bits_per_dim", "bits per dimension", "bits/dim", false, 3},
                                            {"bits_per_byte", "bits per byte", "bits/byte", false, 3},
                                            {"bits_per_character", "bits per character", "bits/character", false, 3},
                                            {"perplexity", "perplexity", "", false, 2},
                                            {"ram", "memory", "MB", false, 0},
                                            {"peak_memory", "peak memory", "MB", false, 0},
                                            {"memory_per_device", "memory of a device", "GB", false, 2},
                                            {"train_time", "training", "hours", false, 2},
                                            {"train_time_per_step", "time of a step", "ms", false, 0},
                                            {"steps_per_second", "speed", "steps/s", true, 1},
                                            {"speed", "speed", "examples/s", true, 1},
                                            {"lra_score", "LRA score", "%", true, 2},
                                            {"smat", "SMAT", "", true, 2}};
  return kAll;
}

// As many as the number has, as people write it.
int decimals_of(double value) {
  const std::string text = fmt::format("{:.{}f}", value, kMostDecimals);
  const size_t point = text.find('.'), last = text.find_last_not_of('0');
  return static_cast<int>(last - point);
}

std::string text_of(const Json& entry, const char* key) {
  return entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>() : "";
}

std::string joined(const std::string& one, const std::string& other) {
  return one + (one.empty() || other.empty() ? "" : ", ") + other;
}

PublishedValue value_of(const Json& entry) {
  PublishedValue value{entry["task"], entry["model"], entry["source"], NAN};
  if (entry["value"].is_number()) value.value = entry["value"];
  value.metric = text_of(entry, "metric");
  value.text = text_of(entry, "text");
  value.unit = text_of(entry, "unit");
  value.qualifier = text_of(entry, "qualifier");
  value.deviation_source = text_of(entry, "std_source");
  if (const std::string from = text_of(entry, "quoted_from"); !from.empty()) value.remark = "quoted from " + from;
  value.remark = joined(joined(text_of(entry, "condition"), text_of(entry, "size")), value.remark);
  if (entry.contains("std")) value.deviation = entry["std"].get<double>();
  if (entry.contains("row")) value.row = entry["row"];
  value.digitised = entry.value("digitised", false);
  for (const auto& [key, option] : entry.items())
    if (key == "length") value.options["data.length"] = option;
    else if (key.find('.') != std::string::npos) value.options[key] = option;
  return value;
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
    XF_CHECK(one.is_object() && text("task") && text("model") && text("source") && one.contains("value"), DataError,
             "{}: entry {}: {}", path.string(), i, expected);
    XF_CHECK(one["value"].is_number() || (one["value"].is_null() && text("text")), DataError,
             "{}: entry {}: value: expected a number, or null beside a \"text\", got {}", path.string(), i,
             one["value"].dump());
    XF_CHECK((!one.contains("std") || one["std"].is_number()) && (!one.contains("row") || one["row"].is_number()) &&
                 (!one.contains("digitised") || one["digitised"].is_boolean()),
             DataError, "{}: entry {}: expected numbers for std and row, and true or false for digitised",
             path.string(), i);
    if (!experiment.empty() && one.value("experiment", "") != experiment) continue;
    result.push_back(value_of(one));
  }
  return result;
}

std::string printed(double value, int decimals) {
  return fmt::format("{:.{}f}", value, std::max(decimals, decimals_of(value)));
}
std::string printed(const PublishedValue& value, int decimals) {
  return value.text.empty() ? printed(value.value, decimals) : value.text;
}

std::string place_text(const PublishedValue& value) {
  return value.source + (value.row > 0 ? fmt::format(", row {}", value.row) : "") +
         (value.deviation_source.empty() ? "" : ", ± from " + value.deviation_source);
}

MetricSpec published_metric(const PublishedValue& value) {
  for (const MetricSpec& known : known_metrics())
    if (known.name == value.metric) return known;
  return {value.metric, value.metric.empty() ? "score" : value.metric, value.unit, true, 2};
}

}  // namespace xformer::reporting
