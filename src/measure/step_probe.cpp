#include "measure/step_probe.h"

namespace xformer::measure {

StepCost probe_steps(const RunPlan& plan, const data::DataShape& shape, int64_t rows, const BenchRun& run) {
  BenchCase one;
  one.plan = plan;
  one.shape = shape;
  one.request = plan::model_request(plan, shape);
  one.name = one.label = plan.model;
  one.length = plan::padded_len(plan, shape);
  one.batch = rows;
  one.precision = plan.options.values["training.precision"];
  BenchOptions options;
  options.models = {plan.model};
  options.lengths = {one.length};
  options.batches = {one.batch};
  options.task = plan.task;
  options.steps = 5;
  options.warmup = 2;
  const Json report = run_bench(options, {one}, run);
  const Json& row = report["rows"][0];
  StepCost result{row["status"], row["message"]};
  if (row["status"] == "ok") result.step_seconds = row["step_ms"]["median"].get<double>() / 1e3;
  const Json& bytes = row["peak_bytes"].is_null() ? row["predicted_bytes"] : row["peak_bytes"];
  if (!bytes.is_null()) result.memory_bytes = bytes;
  return result;
}

}  // namespace xformer::measure
