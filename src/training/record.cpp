#include "training/record.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "kernels/policy.h"
#include "tensor/device.h"
#include "tensor/memory.h"

namespace xformer::training {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

double quantile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = p * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(place), high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
}

std::string status_of(const Error& error) {
  if (error.code() == ExitCode::kDiverged) return "diverged";
  if (error.code() == ExitCode::kInterrupted) return "interrupted";
  return dynamic_cast<const OutOfMemory*>(&error) != nullptr ? "out-of-memory" : "failed";
}

EvaluationPoint point_of(const Evaluation& evaluation, std::optional<int64_t> step) {
  EvaluationPoint point{step, {}, evaluation.loss, evaluation.examples};
  for (const Metric& metric : evaluation.metrics) point.values.emplace_back(metric.spec.name, metric.value);
  return point;
}

std::vector<MetricResult> results_of(const std::vector<MetricSpec>& specs,
                                     const std::optional<EvaluationPoint>& best_dev,
                                     const std::optional<EvaluationPoint>& test, const std::vector<Metric>& chance) {
  std::vector<MetricResult> result;
  const auto add = [&](const std::string& split, const std::optional<EvaluationPoint>& point) {
    for (const MetricSpec& spec : specs) {
      MetricResult& one = result.emplace_back(MetricResult{spec, split, {}});
      if (point) one.value = point->value(spec.name);
    }
  };
  add("dev", best_dev);
  add("test", test);
  for (MetricResult& one : result)
    for (const Metric& constant : chance)
      if (one.split == "test" && constant.spec == one.spec) one.chance = constant.value;
  return result;
}

MetricSpec change_metric(MetricSpec headline, const std::string& shift) {
  headline.name += "_change_" + shift;
  std::replace(headline.name.begin(), headline.name.end(), '-', '_');
  headline.title = fmt::format("change of {} by {}", headline.title, shift);
  return headline;
}

MetricResult change_of(const Metric& test, const Metric& shifted, const std::string& shift) {
  return {change_metric(test.spec, shift), "test", shifted.value - test.value};
}

RunRecord::Data data_of(const data::DataInfo& info) {
  RunRecord::Data data{info.sha256, info.origin, Json::object(), Json::array(), info.details};
  for (const data::Split split : data::kAllSplits)
    data.sizes[data::split_name(split)] = info.sizes[static_cast<size_t>(split)];
  for (const data::Dropped& item : info.dropped)
    data.dropped.push_back({{"split", data::split_name(item.split)}, {"reason", item.reason}, {"count", item.count}});
  return data;
}

std::string selection_split(const data::DataInfo& info) { return info.dev_is_test() ? "test" : "dev"; }

RunRecord::Speed speed_of(const StepTimes& times) {
  const auto at = [&](double p) { return quantile(times.seconds, p); };
  const auto rate = [&](double p) { return at(p) > 0 ? times.examples_per_step / at(p) : 0.0; };
  return {{rate(0.9), rate(0.5), rate(0.1)},
          {1e3 * at(0.1), 1e3 * at(0.5), 1e3 * at(0.9)},
          static_cast<int64_t>(times.seconds.size()),
          quantile(times.page_faults_per_step, 0.5),
          times.input_share,
          1e3 * times.input_seconds};
}

void add_process(const RunOptions& options, RunRecord& record) {
  const MemoryUse memory = device_memory(options.device);
  record.peak_device_bytes = memory.peak_bytes;
  record.reserved_device_bytes = memory.reserved_bytes;
  record.peak_process_bytes = peak_process_bytes();
  record.kernels = options.kernels;
  record.kernels_run = kernels::backends_run();
  record.deterministic = options.deterministic;
  record.software = software_facts();
  record.hardware = hardware_facts(options.device);
  record.date = utc_now();
}

}  // namespace xformer::training
