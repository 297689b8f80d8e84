#include "reporting/learning_curves.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/option_names.h"
#include "reporting/statistics.h"

namespace xformer::reporting {

Plot learning_curves(const std::string& task, const std::vector<CurveRuns>& models) {
  Plot plot;
  MetricSpec metric;
  size_t seeds = 0;
  std::vector<const RunRecord*> all;
  for (const CurveRuns& one : models) {
    std::map<int64_t, std::vector<double>> scores;
    for (const RunRecord* run : one.runs) {
      const MetricResult* const headline = run->headline("dev");
      if (headline == nullptr || !run->dev) continue;
      metric = headline->spec;
      for (const EvaluationPoint& point : *run->dev)
        if (const auto value = point.value(metric.name); value && std::isfinite(*value) && point.step)
          scores[*point.step].push_back(metric.shown(*value));
      all.push_back(run);
    }
    if (scores.empty()) continue;
    PlotSeries& series = plot.series.emplace_back(PlotSeries{one.model, {}});
    for (const auto& [step, values] : scores) {
      PlotPoint& point = series.points.emplace_back(PlotPoint{.x = static_cast<double>(step), .y = mean(values)});
      if (values.size() > 1) {
        const auto [least, most] = std::minmax_element(values.begin(), values.end());
        point.low = *least, point.high = *most;
      }
      seeds = std::max(seeds, values.size());
    }
  }
  plot.title = "Learning curves: " + task;
  plot.x.label = "step";
  plot.y.label = "dev " + metric.heading();
  if (seeds > 1) plot.note = fmt::format("Mean over {} seeds, from minimum to maximum. ", seeds);
  const std::string conditions = conditions_of(all);
  if (!conditions.empty()) plot.note += fmt::format("Runs: {}.", conditions);
  return plot;
}

std::string conditions_of(const std::vector<const RunRecord*>& runs) {
  std::set<std::string> batches, precisions, threads, devices;
  for (const RunRecord* run : runs) {
    if (run->plan.contains("training.batch")) batches.insert(value_word(run->plan["training.batch"]));
    if (run->plan.contains("training.precision")) precisions.insert(value_word(run->plan["training.precision"]));
    if (!run->hardware.is_object()) continue;
    if (run->hardware.contains("threads")) threads.insert(value_word(run->hardware["threads"]));
    if (run->hardware.contains("device")) {
      Json what;  // computed
      if (run->hardware.contains("gpu") && run->hardware["gpu"].is_object())
        what = run->hardware["gpu"].value("name", Json());
      else if (run->hardware.contains("processor")) what = run->hardware["processor"];
      devices.insert(value_word(run->hardware["device"]) +
                     (what.is_null() ? "" : fmt::format(" ({})", value_word(what))));
    }
  }
  std::vector<std::string> parts;
  if (!batches.empty()) parts.push_back(fmt::format("batch {}", fmt::join(batches, " or ")));
  if (!precisions.empty()) parts.push_back(fmt::format("{}", fmt::join(precisions, " or ")));
  if (!threads.empty())
    parts.push_back(
        fmt::format("{} {}", fmt::join(threads, " or "), threads == std::set<std::string>{"1"} ? "thread" : "threads"));
  if (!devices.empty()) parts.push_back(fmt::format("{}", fmt::join(devices, " or ")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace xformer::reporting
