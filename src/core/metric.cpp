#include "core/metric.h"

#include <fmt/format.h>

namespace xformer {

std::string MetricSpec::text(double value) const { return fmt::format("{:.{}f}", shown(value), decimals); }

std::string MetricSpec::heading() const { return unit.empty() ? title : title + ", " + unit; }

MetricSpec accuracy_metric() { return {"accuracy", "accuracy", "%", true, 2}; }
MetricSpec top5_metric() { return {"top5_accuracy", "top 5", "%", true, 2}; }
MetricSpec rmse_metric() { return {"rmse", "RMSE", "", false, 4}; }

}  // namespace xformer
