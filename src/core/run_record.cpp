#include "core/run_record.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/error.h"

namespace xformer {

namespace {

// Every key stands once, in the visit() of its struct, and is written and read from there.

template <class Field>
void visit(RunRecord::Flops& it, const Field& field) {
  field("forward_per_example", it.forward_per_example);
  field("length", it.length);
}

template <class Field>
void visit(RunRecord::Quantiles& it, const Field& field) {
  field("p10", it.p10);
  field("median", it.median);
  field("p90", it.p90);
}

template <class Field>
void visit(RunRecord::Speed& it, const Field& field) {
  field("examples_per_s", it.examples_per_s);
  field("step_ms", it.step_ms);
  field("timed_steps", it.timed_steps);
  field("page_faults_per_step", it.page_faults_per_step);
  field("input_share", it.input_share);
}

template <class Field>
void visit(RunRecord::CudaGraph& it, const Field& field) {
  field("asked", it.asked);
  field("captured_steps", it.captured_steps);
}

template <class Field>
void visit(RunRecord::Energy& it, const Field& field) {
  field("joules", it.joules);
  field("source", it.source);
}

template <class Field>
void visit(RunRecord::Steps& it, const Field& field) {
  field("done", it.done);
  field("planned", it.planned);
}

template <class Field>
void visit(RunRecord::Selection& it, const Field& field) {
  field("rule", it.rule);
  field("split", it.split);
  field("step", it.step);
  field("best", it.best);
}

template <class Field>
void visit(RunRecord::Data& it, const Field& field) {
  field("sha256", it.sha256);
  field("origin", it.origin);
  field("sizes", it.sizes);
  field("dropped", it.dropped);
  field("details", it.details);
}

template <class Field>
void visit(MetricSpec& it, const Field& field) {
  field("name", it.name);
  field("title", it.title);
  field("unit", it.unit);
  field("higher_is_better", it.higher_is_better);
  field("decimals", it.decimals);
}

template <class Field>
void visit(MetricResult& it, const Field& field) {
  visit(it.spec, field);
  field("split", it.split);
  field("value", it.value);
  field("chance", it.chance);
}

template <class Field>
void visit(RunRecord& it, const Field& field) {
  field("schema_version", it.schema);
  field("status", it.status);
  field("message", it.message);
  field("task", it.task);
  field("model", it.model);
  field("family", it.family);
  field("attention", it.attention);
  field("protocol", it.protocol);
  field("seed", it.seed);
  field("plan_hash", it.plan_hash);
  field("experiment", it.experiment);
  field("metrics", it.metrics);
  field("parameters", it.parameters);
  field("flops", it.flops);
  field("speed", it.speed);
  field("train_seconds", it.train_seconds);
  field("evaluation_seconds", it.evaluation_seconds);
  field("peak_device_bytes", it.peak_device_bytes);
  field("reserved_device_bytes", it.reserved_device_bytes);
  field("peak_process_bytes", it.peak_process_bytes);
  field("backend", it.backend);
  field("kernels", it.kernels);
  field("kernels_run", it.kernels_run);
  field("cuda_graph", it.cuda_graph);
  field("energy", it.energy);
  field("deterministic", it.deterministic);
  field("init_from", it.init_from);
  field("steps", it.steps);
  field("selection", it.selection);
  field("dev", it.dev);
  field("test", it.test);
  field("skipped_steps", it.skipped_steps);
  field("resumed_at", it.resumed_at);
  field("data", it.data);
  field("seeds", it.seeds);
  field("search", it.search);
  field("software", it.software);
  field("hardware", it.hardware);
  field("command", it.command);
  field("date", it.date);
  field("plan", it.plan);
  field("origins", it.origins);
}

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

// null: not known.
template <class T>
Json written(T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value.empty() ? Json() : Json(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, Json>) {
    return value;
  } else if constexpr (std::is_same_v<T, EvaluationPoint>) {
    return to_json(value);
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    return value.empty() ? Json() : Json(value);
  } else if constexpr (kIsOptional<T>) {
    if (!value) return Json();
    if constexpr (kIsVector<typename T::value_type>)
      if (value->empty()) return Json::array();  // known to be none
    return written(*value);
  } else if constexpr (kIsVector<T>) {
    Json list = value.empty() ? Json() : Json::array();
    for (auto& element : value) list.push_back(written(element));
    return list;
  } else {
    Json object = Json::object();
    visit(value, [&](const char* key, auto& member) {
      if (Json json = written(member); !json.is_null()) object[key] = std::move(json);
    });
    return object;
  }
}

// False, and nothing taken, from another type.
template <class T>
bool take(const Json& json, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return false;
    value = json.get<std::string>();
  } else if constexpr (std::is_same_v<T, Json>) {
    value = json;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return false;
    value = json.get<bool>();
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (!json.is_number()) return false;
    value = json.get<T>();
  } else if constexpr (std::is_same_v<T, EvaluationPoint>) {
    if (!json.is_object()) return false;
    value = parse_evaluation_point(json);
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    if (!json.is_object()) return false;
    for (const auto& [key, text] : json.items()) take(text, value[key]);
  } else if constexpr (kIsOptional<T>) {
    typename T::value_type inner{};
    if (!take(json, inner)) return false;
    value = std::move(inner);
  } else if constexpr (kIsVector<T>) {
    if (!json.is_array()) return false;
    for (const Json& element : json)
      if (typename T::value_type inner{}; take(element, inner)) value.push_back(std::move(inner));
  } else {
    if (!json.is_object()) return false;
    visit(value, [&](const char* key, auto& member) {
      if (const auto found = json.find(key); found != json.end()) take(*found, member);
    });
  }
  return true;
}

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

Json to_json(const MetricSpec& spec) {
  MetricSpec copy = spec;
  return written(copy);
}

Json to_json(const EvaluationPoint& point) {
  Json result = Json::object();
  if (point.step) result["step"] = *point.step;
  for (const auto& [name, value] : point.values) result[name] = value;
  result["loss"] = point.loss;
  result["examples"] = point.examples;
  return result;
}

EvaluationPoint parse_evaluation_point(const Json& json) {
  EvaluationPoint result;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_number() || key.ends_with("_stderr")) continue;
    if (key == "step") result.step = value.get<int64_t>();
    else if (key == "loss") result.loss = value;
    else if (key == "examples") result.examples = value;
    else result.values.emplace_back(key, value.get<double>());
  }
  return result;
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
  record.family = plan.family;
  record.attention = plan.attention;
  record.protocol = plan.protocol;
  record.seed = plan.seed;
  record.plan_hash = plan.hash();
  record.plan = plan.to_json();
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
    // Standard error over examples, of this one model: no substitute for the spread over seeds.
    const double p = *test->value;
    if (test->spec.unit == "%" && record.test)
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
  if (!result.speed)
    if (const auto rate = number(json, "examples_per_s")) {
      result.speed.emplace();
      result.speed->examples_per_s.median = *rate;
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
