#include "training/record.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "tensor/device.h"
#include "tensor/memory.h"

namespace xformer::training {

namespace {

Json data_json(const data::DataInfo& info) {
  Json sizes = Json::object(), dropped = Json::array();
  for (const data::Split split : data::kAllSplits)
    sizes[data::split_name(split)] = info.sizes[static_cast<size_t>(split)];
  for (const data::Dropped& item : info.dropped)
    dropped.push_back({{"split", data::split_name(item.split)}, {"reason", item.reason}, {"count", item.count}});
  return {{"sha256", info.sha256},
          {"origin", info.origin},
          {"sizes", sizes},
          {"dropped", dropped},
          {"details", info.details}};
}

Json evaluation_json(const Evaluation& evaluation) {
  const Metric& headline = evaluation.headline();
  Json result{{headline.spec.name, headline.value}, {"loss", evaluation.loss}, {"examples", evaluation.examples}};
  // Standard error over examples of a share, of this one model: no substitute for the spread over seeds.
  const double p = headline.value, n = static_cast<double>(evaluation.examples);
  if (headline.spec.unit == "%") result[headline.spec.name + "_stderr"] = std::sqrt(p * (1 - p) / n);
  for (const Metric& metric : evaluation.metrics) result[metric.spec.name] = metric.value;
  return result;
}

// Some protocols select on the test split itself, as the code did whose numbers they are to match.
bool dev_is_test(const RunFacts& facts) {
  return facts.data && facts.data->details.is_object() && facts.data->details.value("dev", "") == "test";
}

}  // namespace

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
  return std::string(error.what()).starts_with("out of memory") ? "out-of-memory" : "failed";
}

Json make_record(const RunPlan& plan, const RunOptions& options, const RunFacts& facts) {
  Json record{{"schema_version", kRecordSchema},
              {"status", facts.status},
              {"task", plan.task},
              {"model", plan.model},
              {"family", plan.family},
              {"attention", plan.attention},
              {"protocol", plan.protocol},
              {"seed", plan.seed},
              {"plan_hash", plan.hash()}};
  if (!facts.message.empty()) record["message"] = facts.message;
  record["accuracy"] = nullptr;  // readers of old look for it
  if (facts.test) record[facts.test->headline().spec.name] = facts.test->headline().value;
  record["chance"] = facts.test ? Json(facts.chance.front().value) : Json();
  record["parameters"] = facts.parameters;
  record["flops_per_example"] = facts.flops_forward;
  record["flops"] = {{"forward_per_example", facts.flops_forward},
                     {"training_per_example", 3 * facts.flops_forward},
                     {"length", facts.padded_len},
                     {"counts", "matrix products, multiply-add = 2, formula of the model; backward = 2 x forward"}};
  const auto rate = [&](double p) {
    const double seconds = quantile(facts.times.seconds, p);
    return seconds > 0 ? facts.examples_per_step / seconds : 0.0;
  };
  record["examples_per_s"] = rate(0.5);
  record["speed"] = {{"examples_per_s", {{"p10", rate(0.9)}, {"median", rate(0.5)}, {"p90", rate(0.1)}}},
                     {"step_ms",
                      {{"p10", 1e3 * quantile(facts.times.seconds, 0.1)},
                       {"median", 1e3 * quantile(facts.times.seconds, 0.5)},
                       {"p90", 1e3 * quantile(facts.times.seconds, 0.9)}}},
                     {"timed_steps", facts.times.seconds.size()},
                     {"page_faults_per_step", quantile(facts.times.page_faults_per_step, 0.5)},
                     {"input_share", facts.times.input_share}};
  record["train_seconds"] = facts.train_seconds;
  record["evaluation_seconds"] = facts.evaluation_seconds;
  record["peak_device_bytes"] = device_memory(options.device).peak_bytes;
  record["reserved_device_bytes"] = device_memory(options.device).reserved_bytes;
  record["peak_process_bytes"] = peak_process_bytes();
  record["backend"] = facts.backend;
  record["kernels"] = options.kernels;
  record["cuda_graph"] = {{"asked", options.cuda_graph}, {"captured_steps", facts.recorded_steps}};
  record["energy"] = facts.energy_joules ? Json{{"joules", *facts.energy_joules}, {"source", "NVML"}} : Json();
  record["deterministic"] = options.deterministic;
  record["init_from"] = facts.state.value("init_from", Json());
  record["steps"] = {{"done", facts.steps_done}, {"planned", facts.steps_planned}};
  record["selection"] = {{"rule", plan.options.values.value("training.selection", "")},
                         {"split", dev_is_test(facts) ? "test" : "dev"},
                         {"step", facts.selected_step},
                         {"best", facts.state.value("best", Json())}};
  record["dev"] = facts.state.value("dev_points", Json::array());
  record["test"] = facts.test ? evaluation_json(*facts.test) : Json();
  record["skipped_steps"] = facts.state.value("skipped_steps", 0);
  record["resumed_at"] = facts.state.value("resumed_at", Json::array());
  record["data"] = facts.data ? data_json(*facts.data) : Json();
  record["seeds"] = {{"run", plan.seed}, {"derived", {"init", "order", "dropout"}}};
  record["software"] = software_facts();
  record["hardware"] = hardware_facts(options.device);
  record["command"] = options.command;
  record["date"] = utc_now();
  record["plan"] = plan.to_json();
  record["origins"] = plan.options.origins;
  return record;
}

}  // namespace xformer::training
