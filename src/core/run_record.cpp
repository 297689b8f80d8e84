#include "core/run_record.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace xformer {

template <class Fields>
void visit(RunRecord::Flops& it, const Fields& fields) {
  fields("forward_per_example", it.forward_per_example, "length", it.length);
}

template <class Fields>
void visit(RunRecord::Quantiles& it, const Fields& fields) {
  fields("p10", it.p10, "median", it.median, "p90", it.p90);
}

template <class Fields>
void visit(RunRecord::Speed& it, const Fields& fields) {
  fields("examples_per_s", it.examples_per_s, "step_ms", it.step_ms, "timed_steps", it.timed_steps,
         "page_faults_per_step", it.page_faults_per_step, "input_share", it.input_share, "input_work_ms",
         it.input_work_ms);
}

template <class Fields>
void visit(RunRecord::CudaGraph& it, const Fields& fields) {
  fields("asked", it.asked, "captured_steps", it.captured_steps);
}

template <class Fields>
void visit(RunRecord::Energy& it, const Fields& fields) {
  fields("joules", it.joules, "source", it.source);
}

template <class Fields>
void visit(RunRecord::Steps& it, const Fields& fields) {
  fields("done", it.done, "planned", it.planned);
}

template <class Fields>
void visit(RunRecord::Selection& it, const Fields& fields) {
  fields("rule", it.rule, "split", it.split, "step", it.step, "best", it.best);
}

template <class Fields>
void visit(RunRecord::Data& it, const Fields& fields) {
  fields("sha256", it.sha256, "origin", it.origin, "sizes", it.sizes, "dropped", it.dropped, "details", it.details);
}

template <class Fields>
void visit(MetricResult& it, const Fields& fields) {
  visit(it.spec, fields);
  fields("split", it.split, "value", it.value, "chance", it.chance);
}

template <class Fields>
void visit(RunRecord& it, const Fields& fields) {
  fields("schema_version", it.schema, "status", it.status, "message", it.message, "not_comparable", it.not_comparable,
         "task", it.task, "model", it.model, "name", it.name, "family", it.family, "attention", it.attention,
         "protocol", it.protocol, "seed", it.seed, "plan_hash", it.plan_hash, "experiment", it.experiment, "metrics",
         it.metrics, "parameters", it.parameters, "flops", it.flops, "speed", it.speed, "train_seconds",
         it.train_seconds, "evaluation_seconds", it.evaluation_seconds, "peak_device_bytes", it.peak_device_bytes,
         "reserved_device_bytes", it.reserved_device_bytes, "peak_process_bytes", it.peak_process_bytes, "backend",
         it.backend, "kernels", it.kernels, "kernels_run", it.kernels_run, "cuda_graph", it.cuda_graph, "energy",
         it.energy, "deterministic", it.deterministic, "init_from", it.init_from, "steps", it.steps, "selection",
         it.selection, "train", it.train, "dev", it.dev, "test", it.test, "skipped_steps", it.skipped_steps,
         "resumed_at", it.resumed_at, "data", it.data, "seeds", it.seeds, "search", it.search, "software", it.software,
         "hardware", it.hardware, "command", it.command, "date", it.date, "plan", it.plan, "origins", it.origins);
}

namespace {

std::optional<double> number(const Json& json, const std::string& key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

// Before schema 2 a metric was its key alone.
void name_metrics(const Json& json, RunRecord& record) {
  for (const MetricSpec& spec : {rmse_metric(), accuracy_metric(), top5_metric()}) {
    const auto best =
        record.selection && record.selection->best ? record.selection->best->value(spec.name) : std::nullopt;
    std::optional<double> test = number(json, spec.name);
    if (!test && record.test) test = record.test->value(spec.name);
    if (best) record.metrics.push_back({spec, "dev", best});
    if (test) record.metrics.push_back({spec, "test", test});
    if (test && record.headline("test") == &record.metrics.back())
      record.metrics.back().chance = number(json, "chance");
  }
}

}  // namespace

std::optional<double> EvaluationPoint::value(const std::string& metric) const {
  for (const auto& [name, value] : values)
    if (name == metric) return value;
  return std::nullopt;
}

Json written(const EvaluationPoint& point) {
  Json result = Json::object();
  if (point.step) result["step"] = *point.step;
  for (const auto& [name, value] : point.values) result[name] = value;
  result["loss"] = point.loss;
  result["examples"] = point.examples;
  return result;
}

bool take(const Json& json, EvaluationPoint& point) {
  if (!json.is_object()) return false;
  for (const auto& [key, value] : json.items()) {
    if (!(value.is_number() || value.is_null()) || key.ends_with("_stderr")) continue;
    // null: what is not finite, as JSON has it
    const double number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    if (key == "loss") point.loss = number;
    else if (key != "step" && key != "examples") point.values.emplace_back(key, number);
    else if (value.is_null()) continue;
    else if (key == "step") point.step = value.get<int64_t>();
    else point.examples = value;
  }
  return true;
}

const MetricResult* RunRecord::headline(const std::string& split) const {
  for (const MetricResult& one : metrics)
    if (one.split == split) return &one;
  return nullptr;
}

std::optional<double> RunRecord::score() const {
  const MetricResult* const found = headline("test");
  return found != nullptr ? found->value : std::nullopt;
}

bool RunRecord::from_scratch() const {
  const auto hash = plan.find("training.init_sha256");
  return hash == plan.end() || *hash == "";
}

std::string RunRecord::commit() const {
  std::string result;
  if (software.is_object() && software.contains("commit")) take(software["commit"], result);
  return result;
}

bool RunRecord::dirty() const {
  bool result = true;
  if (software.is_object() && software.contains("dirty")) take(software["dirty"], result);
  return result;
}

RunRecord record_of_plan(const RunPlan& plan, const std::string& command) {
  RunRecord record;
  record.task = plan.task;
  record.model = plan.model;
  record.name = plan.name();
  record.family = plan.family;
  record.attention = plan.attention;
  record.protocol = plan.protocol;
  record.seed = plan.seed;
  record.plan_hash = plan.hash();
  record.plan = plan.to_json();
  // A number in whose place epochs are counted says nothing of the run.
  for (const auto& [epochs, number] :
       {std::pair{"training.epochs", "training.steps"}, std::pair{"training.eval_epochs", "training.eval_every"},
        std::pair{"training.warmup_epochs", "training.warmup"}})
    if (record.plan.value(epochs, 0) > 0) record.plan.erase(number);
  if (const std::string limit = record.plan.value("data.limit", ""); !limit.empty())
    record.not_comparable = fmt::format("of part of the data (data.limit={})", limit);
  record.command = command;
  return record;
}

Json to_json(const RunRecord& record) {
  RunRecord copy = record;
  copy.schema = kRecordSchema;
  Json result = written(copy);
  // What is asked for most also stands at the top.
  if (const MetricResult* const test = record.headline("test"); test != nullptr && test->value) {
    result[test->spec.name] = *test->value;
    if (test->chance) result["chance"] = *test->chance;
    // Standard error over examples, of this one model: no substitute for the spread over seeds. Other metrics in
    // percent (AUC, F1, Gini) are no shares of examples.
    const double p = *test->value;
    if (test->spec.name == accuracy_metric().name && record.test)
      result["test"][test->spec.name + "_stderr"] = std::sqrt(p * (1 - p) / static_cast<double>(record.test->examples));
  }
  if (record.flops) {
    result["flops_per_example"] = record.flops->forward_per_example;
    result["flops"]["training_per_example"] = 3 * record.flops->forward_per_example;
    result["flops"]["counts"] = "matrix products, multiply-add = 2, formula of the model; backward = 2 x forward";
  }
  if (record.speed) result["examples_per_s"] = record.speed->examples_per_s.median;
  return result;
}

RunRecord parse_run_record(const Json& json) {
  RunRecord result;
  result.schema = 0;
  if (!take(json, result)) return result;
  if (!json.contains("metrics")) name_metrics(json, result);
  // Older programs wrote 0 where nothing was timed.
  if (result.speed && !(result.speed->examples_per_s.median > 0)) result.speed.reset();
  if (!result.speed)
    if (const auto rate = number(json, "examples_per_s"); rate && *rate > 0) {
      RunRecord::Speed speed;
      speed.examples_per_s.median = *rate;
      result.speed = speed;
    }
  return result;
}

RunRecord read_run_record(const Path& path) {
  std::error_code ignored;
  const bool there = std::filesystem::is_regular_file(path, ignored);
  const Json json = there ? Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false) : Json();
  RunRecord result = parse_run_record(json);
  if (json.is_object()) result.path = path;
  return result;
}

}  // namespace xformer
