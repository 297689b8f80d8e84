#include "reporting/bench_growth.h"

#include <algorithm>
#include <map>

#include "reporting/svg_plot.h"

namespace xformer::reporting {
namespace {

constexpr size_t kLeastLengths = 3;

// A model at one batch, width and precision.
struct Series {
  std::string label;
  int64_t batch = 0;
  Json attention = {};
  std::map<int64_t, std::pair<double, double>> at;  // length to ms and bytes
};

std::vector<Series> series_of(const Json& report) {
  std::vector<Series> result;
  std::vector<Json> keys;
  for (const Json& row : report.at("rows")) {
    const Json step = row.value("step_ms", Json()), peak = row.value("peak_bytes", Json());
    const Json median = step.is_object() ? step.value("median", Json()) : Json();
    if (row.value("status", "") != "ok" || !median.is_number() || !peak.is_number()) continue;
    const std::string label = row.value("label", row["model"].get<std::string>());
    const Json key{label, row["batch"], row.value("width", Json()), row.value("precision", Json())};
    const auto found = std::find(keys.begin(), keys.end(), key);
    const auto place = static_cast<size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(key);
      result.push_back({label, row["batch"], row.value("attention", Json()), {}});
    }
    result[place].at[row["length"].get<int64_t>()] = {median.get<double>(), peak.get<double>()};
  }
  return result;
}

}  // namespace

std::vector<GrowthRow> growth_of(const Json& report) {
  std::vector<GrowthRow> result;
  for (const Series& one : series_of(report)) {
    if (one.at.size() < kLeastLengths) continue;
    std::vector<PlotPoint> times, peaks;
    for (const auto& [length, measured] : one.at) {
      times.push_back({.x = static_cast<double>(length), .y = measured.first});
      peaks.push_back({.x = static_cast<double>(length), .y = measured.second});
    }
    const auto last = [](const std::vector<PlotPoint>& points) {
      return growth_exponent(std::vector<PlotPoint>(points.end() - 2, points.end()));
    };
    const auto& [longest, measured] = *one.at.rbegin();
    GrowthRow& row = result.emplace_back(GrowthRow{.label = one.label,
                                                   .batch = one.batch,
                                                   .longest = longest,
                                                   .time = growth_exponent(times),
                                                   .memory = growth_exponent(peaks),
                                                   .time_at_last = last(times),
                                                   .memory_at_last = last(peaks),
                                                   .step_ms = measured.first,
                                                   .peak_bytes = measured.second});
    if (!one.attention.is_object()) continue;
    row.method_class = one.attention.at("class");
    row.causal = one.attention.at("causal").get<bool>() ? "yes" : "no";
    row.said = one.attention.at("growth");
  }
  return result;
}

Table shown(const std::vector<GrowthRow>& rows) {
  const bool facts = std::any_of(rows.begin(), rows.end(), [](const GrowthRow& row) { return !row.said.empty(); });
  Table result;
  result.columns = {{.label = "model", .numbers = false}};
  if (facts)
    for (const char* label : {"class", "causal", "growth"})
      result.columns.push_back({.label = label, .numbers = false});
  for (const char* label : {"batch", "time, n^", "time, last two, n^", "memory, n^", "memory, last two, n^", "longest"})
    result.columns.push_back({.label = label});
  result.columns.push_back({.label = "step there", .unit = "ms"});
  result.columns.push_back({.label = "memory there", .unit = "MB"});
  for (const GrowthRow& row : rows) {
    std::vector<TableCell>& cells = result.rows.emplace_back();
    cells.push_back({row.label});
    if (facts)
      for (const std::string& word : {row.method_class, row.causal, row.said})
        cells.push_back({word.empty() ? "-" : word});
    const auto add = [&](double value, int decimals) { cells.push_back(number_cell(value, decimals)); };
    add(static_cast<double>(row.batch), 0);
    for (const double exponent : {row.time, row.time_at_last, row.memory, row.memory_at_last}) add(exponent, 2);
    add(static_cast<double>(row.longest), 0);
    add(row.step_ms, 1);
    add(row.peak_bytes / 1e6, 1);
  }
  result.notes = {"Exponents of the length n: slopes of the logarithms over all lengths, and between the two longest."};
  if (facts) result.notes.front() += " Class, causal and growth are what `xformer list attentions` says.";
  return result;
}

}  // namespace xformer::reporting
