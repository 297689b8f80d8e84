// What a run will take, from five of its steps.
#include "measure/step_probe.h"

#include "bench_support.h"

namespace xformer::measure {

TEST_CASE("a probe measures five steps of a plan as it is, and foresees what does not fit") {
  install_caching_allocator();
  plan::PlanRequest request;
  request.task = "listops";
  request.model = "linear";
  request.layers = small_bench({}, {}).layers;
  request.layers.push_back({"test", {{"data.max_length", 30}, {"data.min_length", 10}}});
  const RunPlan plan = plan::resolve_plan(request);
  const data::DataShape shape = plan::planned_shape(plan);
  BenchRun run;
  int64_t steps = 0;
  run.progress = [&](auto&&...) { ++steps; };
  const StepCost cost = probe_steps(plan, shape, 4, run);
  CHECK(cost.status == "ok");
  CHECK(steps == 2 + 5);
  CHECK((cost.step_seconds > 0 && cost.memory_bytes > 0));
  run.memory_limit = 10;
  const StepCost large = probe_steps(plan, shape, 4, run);
  CHECK(large.status == "too-large");
  CHECK((large.step_seconds == 0 && large.memory_bytes > 10));
}

}  // namespace xformer::measure
