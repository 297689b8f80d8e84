#include "core/metric.h"

#include <fmt/format.h>

#include "core/error.h"

namespace xformer {

std::string MetricSpec::text(double value) const { return fmt::format("{:.{}f}", shown(value), decimals); }

std::string MetricSpec::heading() const { return unit.empty() ? title : title + ", " + unit; }

MetricSpec accuracy_metric() { return {"accuracy", "accuracy", "%", true, 2}; }
MetricSpec top5_metric() { return {"top5_accuracy", "top 5", "%", true, 2}; }
MetricSpec rmse_metric() { return {"rmse", "RMSE", "", false, 4}; }

Json metric_to_json(const Metric& metric) {
  const MetricSpec& spec = metric.spec;
  return {{"name", spec.name},         {"title", spec.title},
          {"unit", spec.unit},         {"higher_is_better", spec.higher_is_better},
          {"decimals", spec.decimals}, {"value", metric.value}};
}

Metric metric_from_json(const Json& json) {
  try {
    return {{json.at("name"), json.at("title"), json.at("unit"), json.at("higher_is_better"), json.at("decimals")},
            json.at("value")};
  } catch (const Json::exception& problem) {
    throw DataError(fmt::format("expected a metric, found {}: {}", json.dump(), problem.what()));
  }
}

}  // namespace xformer
