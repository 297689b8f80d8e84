// Whole runs that are stopped and gone on with: they end in the bits of one that never stopped.
#include "image_tree.h"
#include "run_setting.h"
#include "training/run_directory.h"

namespace xformer::training {

namespace {

// A run "parts-" + name that stops at step 12 and goes on ends in the bits of "whole-" + name, which never stopped.
void check_goes_on(Setting& setting, const RunPlan& plan, const std::string& name) {
  static_cast<void>(setting.run(plan, setting.options("whole-" + name)));
  RunOptions parts = setting.options("parts-" + name);
  parts.stop_after = 12;
  CHECK(setting.run(plan, parts)["status"] == "stopped");
  parts.stop_after = 0;
  CHECK(setting.run(plan, parts)["status"] == "completed");
  CHECK(setting.content_hash("parts-" + name) == setting.content_hash("whole-" + name));
}

}  // namespace

TEST_CASE("stopped anywhere and gone on with, a run ends in the same bits") {
  // fp16: the loss scale is part of what goes on; batch norm: its running statistics are.
  for (const Json& more : {Json{{"training.precision", "fp32"}}, Json{{"training.precision", "bf16"}},
                           Json{{"training.precision", "fp16"}}, Json{{"model.norm", "batch"}}}) {
    CAPTURE(more);
    Setting setting;
    const RunPlan plan = plan_with(more);
    static_cast<void>(setting.run(plan, setting.options("whole")));
    RunOptions parts = setting.options("parts");
    for (const int64_t stop : {1, 5, 6, 11}) {
      parts.stop_after = stop;
      CHECK(setting.run(plan, parts)["status"] == "stopped");
    }
    parts.stop_after = 0;
    const Json record = setting.run(plan, parts);
    CHECK(record["status"] == "completed");
    CHECK(record["resumed_at"] == Json({1, 5, 6, 11}));
    CHECK(setting.content_hash("parts") == setting.content_hash("whole"));
  }
}

TEST_CASE("every attention goes on from step 12 in the same bits, dropout on") {
  Setting setting;
  for (const std::string& name : attention::all_names()) {
    INFO(name);
    const RunPlan plan =
        plan_with({{"training.steps", 15}, {"model.dropout", 0.1}, {"model.attention_dropout", 0.1}}, name);
    check_goes_on(setting, plan, name);
  }
}

TEST_CASE("in bf16 a run goes on in the same bits, dropout on, and its weights and moments are float") {
  Setting setting;
  for (const std::string name :
       {"none", "softmax-fused", "mrs-linformer", "performer", "reformer", "linear", "nystromformer"}) {
    INFO(name);
    const RunPlan plan = plan_with({{"training.steps", 15},
                                    {"training.precision", "bf16"},
                                    {"model.dropout", 0.1},
                                    {"model.attention_dropout", 0.1}},
                                   name);
    check_goes_on(setting, plan, name);
    // Of all that a run goes on from: the weights that are trained, those of the best evaluation, the optimiser's.
    const Path whole = setting.scratch.path() / ("whole-" + name);
    const auto checkpoint = newest_checkpoint(whole, [](const std::string&) {});
    REQUIRE(checkpoint.has_value());
    int64_t weights = 0, moments = 0;
    for (const auto& [key, tensor] : checkpoint->tensors) {
      const bool weight = key.starts_with("model.") || key.starts_with("best.");
      const bool moment = key.starts_with("optimizer.exp_avg.") || key.starts_with("optimizer.exp_avg_sq.");
      weights += weight, moments += moment;
      if (!weight && !moment) continue;
      INFO(key);
      CHECK(tensor.scalar_type() == at::kFloat);
    }
    CHECK((weights > 0 && moments > 0 && moments % 2 == 0));
    for (const auto& [key, tensor] : read_tensor_file(whole / "model.safetensors").tensors) {
      INFO(key);
      CHECK(tensor.scalar_type() == at::kFloat);
    }
  }
}

TEST_CASE("augmented and mixed images go on in the same bits") {
  Setting setting;
  image_tree::make(setting.scratch / "tree", {"a", "b", "c"}, 7, 2);
  plan::PlanRequest request;
  request.task = "image-folder";
  request.model = "mrs-deit";
  request.protocol = "small";
  request.layers.push_back({"test",
                            {{"data.side", 16},
                             {"data.repeats", 2},
                             {"model.dim", 16},
                             {"model.layers", 2},
                             {"model.head_dim", 4},
                             {"model.ff_dim", 16},
                             {"training.batch", 6},
                             {"training.epochs", 3},
                             {"training.warmup_epochs", 1}}});
  const RunPlan plan = plan::resolve_plan(request);
  RunOptions whole = setting.options("whole"), parts = setting.options("parts");
  whole.data.folder = parts.data.folder = setting.scratch / "tree";
  const Json record = setting.run(plan, whole);
  CHECK((record["status"] == "completed" && record["steps"]["done"] == 12));
  for (const int64_t stop : {1, 5, 6}) {
    parts.stop_after = stop;
    CHECK(setting.run(plan, parts)["status"] == "stopped");
  }
  parts.stop_after = 0;
  CHECK(setting.run(plan, parts)["status"] == "completed");
  CHECK(setting.content_hash("parts") == setting.content_hash("whole"));
}

TEST_CASE("a stop during an evaluation saves, and the evaluation is made up for") {
  Setting setting;
  const RunPlan plan = plan_with();
  static_cast<void>(setting.run(plan, setting.options("whole")));
  RunOptions options = setting.options("parts");
  int runs = 0;
  for (int patience = 1;; ++patience) {
    int asked = 0;
    options.stop_requested = [&] { return ++asked > patience; };
    ++runs;
    try {
      const Json record = setting.run(plan, options);
      CHECK(record["dev"].size() == 3);
      break;
    } catch (const Interrupted& stopped) {
      CHECK(std::string(stopped.what()).find("goes on") != std::string::npos);
      CHECK(read_json_file(options.out / "record.json")["status"] == "interrupted");
    }
  }
  CHECK(runs > 3);
  CHECK(setting.content_hash("parts") == setting.content_hash("whole"));
}

}  // namespace xformer::training
