// record.json: what a run was and what came of it, complete in itself (docs/record.md). Training writes it; tables,
// sweeps and commands read it. What is not known is not there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/json_members.h"
#include "core/metric.h"
#include "core/run_plan.h"

namespace xformer {

inline constexpr int64_t kRecordSchema = 2;

template <class Fields>
void visit(MetricSpec& it, const Fields& fields) {
  fields("name", it.name, "title", it.title, "unit", it.unit, "higher_is_better", it.higher_is_better, "decimals",
         it.decimals);
}

struct MetricResult {
  MetricSpec spec;
  std::string split;                  // "dev": at the best evaluation; "test": of the weights that were selected
  std::optional<double> value;        // none: not reached
  std::optional<double> chance = {};  // what the best constant answer gets there
};

// One evaluation of a split.
struct EvaluationPoint {
  std::optional<int64_t> step;                         // of dev's
  std::vector<std::pair<std::string, double>> values;  // by the metric's name; the first is the headline
  double loss = 0;
  int64_t examples = 0;
  [[nodiscard]] std::optional<double> value(const std::string& metric) const;
  bool operator==(const EvaluationPoint&) const = default;
};
// {"step": 4, "accuracy": 0.5, "loss": 1.2, "examples": 100}: every other number that is read is a metric's value.
[[nodiscard]] Json written(const EvaluationPoint& point);
[[nodiscard]] inline Json written(EvaluationPoint& point) { return written(std::as_const(point)); }
bool take(const Json& json, EvaluationPoint& point);

struct RunRecord {
  // The last line of the log on training: the mean since the line before it.
  struct Train {
    int64_t step = 0;
    double loss = 0;
  };
  struct Flops {
    double forward_per_example = 0;
    int64_t length = 0;  // padded
  };
  struct Quantiles {
    double p10 = 0, median = 0, p90 = 0;
  };
  struct Speed {
    Quantiles examples_per_s, step_ms;
    int64_t timed_steps = 0;
    double page_faults_per_step = 0;
    double input_share = 0;                    // of a step's time: waiting for its batch
    std::optional<double> input_work_ms = {};  // that making a batch took, beside the steps or not
  };
  struct CudaGraph {
    std::string asked;
    int64_t captured_steps = 0;  // lengths whose step was captured
  };
  struct Energy {
    double joules = 0;
    std::string source;
  };
  struct Steps {
    int64_t done = 0, planned = 0;
  };
  struct Selection {
    std::string rule, split;      // the split it looked at: "dev", or "test" where a protocol selects on that
    std::optional<int64_t> step;  // whose weights were tested
    std::optional<EvaluationPoint> best;
  };
  struct Data {
    std::string sha256, origin;
    Json sizes, dropped, details;
  };

  int64_t schema = kRecordSchema;  // 0: read from something that names none
  Path path;                       // where it was read; "": nowhere, as of a run that is wanted and not there
  std::string status, message;
  std::string not_comparable;  // why, of a run that no table may set beside others
  std::string task, model, name, family, attention, protocol, plan_hash, experiment;
  int64_t seed = 0;
  std::vector<MetricResult> metrics;  // of each split the headline comes first
  std::optional<int64_t> parameters;
  std::optional<Flops> flops;
  std::optional<Speed> speed;  // of the last process
  std::optional<double> train_seconds, evaluation_seconds;
  std::optional<int64_t> peak_device_bytes, reserved_device_bytes, peak_process_bytes;
  std::string backend, kernels;
  std::map<std::string, std::string> kernels_run;  // by operator: what ran
  std::optional<CudaGraph> cuda_graph;
  std::optional<Energy> energy;  // of the device in the last process, from its first step on, evaluations included
  std::optional<bool> deterministic;
  Json init_from, seeds, search, software, hardware;  // facts as they come
  std::optional<Steps> steps;
  std::optional<Selection> selection;
  std::optional<Train> train;  // none where that loss was not finite
  std::optional<std::vector<EvaluationPoint>> dev;
  std::optional<EvaluationPoint> test;
  std::optional<int64_t> skipped_steps;
  std::optional<std::vector<int64_t>> resumed_at;
  std::optional<Data> data;
  std::string command, date;
  Json plan = Json::object(), origins;

  // The model as it was typed; records of before that was kept have its canonical name alone.
  [[nodiscard]] const std::string& called() const { return name.empty() ? model : name; }
  // The first metric of a split; nullptr when there is none.
  [[nodiscard]] const MetricResult* headline(const std::string& split) const;
  // Its value on test, of a run that got there.
  [[nodiscard]] std::optional<double> score() const;
  [[nodiscard]] bool completed() const { return status == "completed"; }
  [[nodiscard]] bool from_scratch() const;   // its plan begins with no weights of another run
  [[nodiscard]] std::string commit() const;  // "" when not known
  [[nodiscard]] bool dirty() const;          // built from modified sources, or nobody knows
};

template <class Fields>
void visit(RunRecord::Train& it, const Fields& fields) {
  fields("step", it.step, "loss", it.loss);
}

// Of a run about which nothing but what was asked for is known.
[[nodiscard]] RunRecord record_of_plan(const RunPlan& plan, const std::string& command);
[[nodiscard]] Json to_json(const RunRecord& record);
// What a record of any schema says, as far as it can be read.
[[nodiscard]] RunRecord parse_run_record(const Json& json);
// The same of a file; without a path where there is none, or it holds no JSON object.
[[nodiscard]] RunRecord read_run_record(const Path& path);

}  // namespace xformer
