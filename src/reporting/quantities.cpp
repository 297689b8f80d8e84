#include "reporting/quantities.h"

#include "core/names.h"

namespace xformer::reporting {
namespace {

template <class Number>
std::optional<double> scaled(const std::optional<Number>& value, double unit) {
  return value ? std::optional(static_cast<double>(*value) / unit) : std::nullopt;
}

// A run of few steps has none; older records say so with a 0.
std::optional<double> speed(const RunRecord& run) {
  if (!run.speed || !(run.speed->examples_per_s.median > 0)) return std::nullopt;
  return run.speed->examples_per_s.median;
}

std::optional<double> memory(const RunRecord& run) { return scaled(run.peak_device_bytes, 1e6); }
std::optional<double> parameters(const RunRecord& run) { return scaled(run.parameters, 1); }
std::optional<double> flops(const RunRecord& run) {
  return run.flops ? scaled(std::optional(run.flops->forward_per_example), 1e9) : std::nullopt;
}

std::optional<double> time(const RunRecord& run) {
  return run.train_seconds ? std::optional((*run.train_seconds + run.evaluation_seconds.value_or(0)) / 60)
                           : std::nullopt;
}

std::optional<double> input(const RunRecord& run) { return run.speed ? run.speed->input_work_ms : std::nullopt; }

std::optional<double> train_loss(const RunRecord& run) {
  return run.train ? std::optional(run.train->loss) : std::nullopt;
}

// It is that of the last process.
std::optional<double> energy(const RunRecord& run) {
  const bool whole = run.energy && (!run.resumed_at || run.resumed_at->empty());
  return whole ? std::optional(run.energy->joules / 1e3) : std::nullopt;
}

}  // namespace

const std::vector<Quantity>& quantities() {
  constexpr bool kExact = true, kOfMachine = true;
  static const std::vector<Quantity> kAll{{{"speed", "speed", "examples/s", true, 1}, speed, !kExact, kOfMachine},
                                          {{"memory", "peak memory", "MB", false, 1}, memory, !kExact, kOfMachine},
                                          {{"parameters", "parameters", "", false, 0}, parameters, kExact},
                                          {{"flops", "operations", "GFLOP", false, 4}, flops, kExact},
                                          {{"time", "time", "min", false, 1}, time, !kExact, kOfMachine},
                                          {{"energy", "energy", "kJ", false, 1}, energy, !kExact, kOfMachine},
                                          {{"input", "input of a batch", "ms", false, 2}, input, !kExact, kOfMachine},
                                          {{"train_loss", "training loss", "", false, 3}, train_loss}};
  return kAll;
}

std::set<std::string> machines_of(const std::vector<const RunRecord*>& runs) {
  std::set<std::string> result;
  for (const RunRecord* run : runs) {
    if (!run->hardware.is_object()) continue;
    const std::string device = run->hardware.value("device", "");
    if (device.starts_with("cuda")) result.insert(run->hardware.value(Json::json_pointer("/gpu/name"), "GPU"));
    else if (!device.empty()) result.insert("CPU");
  }
  return result;
}

bool Quantity::has_mean_over(const std::vector<const RunRecord*>& runs) const {
  return !of_machine || machines_of(runs).size() < 2;
}

const Quantity* quantity_named(const std::string& name) {
  for (const Quantity& one : quantities())
    if (one.metric.name == name) return &one;
  return nullptr;
}

std::optional<MetricSpec> metric_of(const RunRecord& run, const std::string& name) {
  if (const Quantity* const one = quantity_named(name)) return one->metric;
  for (const MetricResult& one : run.metrics)
    if (one.split == "test" && one.spec.name == name) return one.spec;
  return std::nullopt;
}

std::optional<Metric> value_of(const RunRecord& run, const std::string& name) {
  if (const Quantity* const one = quantity_named(name)) {
    const std::optional<double> value = one->of(run);
    return value ? std::optional(Metric{one->metric, *value}) : std::nullopt;
  }
  for (const MetricResult& one : run.metrics)
    if (one.split == "test" && one.spec.name == name && one.value) return Metric{one.spec, one.spec.shown(*one.value)};
  return std::nullopt;
}

const Quantity& find_quantity(const std::string& name) {
  std::vector<std::string> names;
  for (const Quantity& one : quantities()) names.push_back(one.metric.name);
  return quantities()[choice("--metric: ", "quantity", name, names)];
}

}  // namespace xformer::reporting
