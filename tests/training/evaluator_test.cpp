// Evaluations by the counts of mlpen's code (lra-recipe 7.1).
#include "training/evaluator.h"

#include "run_setting.h"
#include "training/course.h"

namespace xformer::training {

TEST_CASE("under parity every call sees full batches alone, epoch by epoch, and test drops its partial one") {
  Setting setting;
  const RunPlan plan = plan_with({{"data.dev_examples", 20}});
  const auto source = open_data(plan, setting.options("a").data, setting.silent.data_progress(), [] { return false; });
  const auto model = plan::build_model(plan, source->info().shape);
  Evaluator evaluator(*model, tasks::make_task(source->info().shape), at::kCPU);
  EvaluationRequest request;
  request.batch = 8;
  request.padded_len = plan::padded_len(plan, source->info().shape);
  request.seed = 7;
  const auto examples = [&](int64_t batches, int64_t call) {
    request.parity_batches = batches;
    request.call = call;
    return evaluator.run(*source, request)->examples;
  };
  for (int64_t call = 0; call < 5; ++call) {
    CAPTURE(call);
    CHECK(examples(1, call) == 8);
    CHECK(examples(2, call) == 16);
    CHECK(examples(3, call) == 24);
  }
  request.parity_batches = 0;
  CHECK(evaluator.run(*source, request)->examples == 20);
  request.drop_remainder = true;
  CHECK(evaluator.run(*source, request)->examples == 16);
  request.batch = 32;  // the only one is partial
  CHECK(evaluator.run(*source, request)->examples == 20);
  CHECK(examples(1, 3) == 20);
}

}  // namespace xformer::training
