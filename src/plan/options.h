// Options of training and evaluation, and how words become a complete plan.
#pragma once

#include <map>
#include <string>

#include "attention/descriptor.h"
#include "core/run_plan.h"
#include "data/datasets.h"
#include "data/shifted_source.h"
#include "models/model.h"
#include "plan/protocols.h"

namespace xformer::plan {

// "training." in a plan.
struct TrainingOptions {
  int64_t steps = 5000, epochs = 0, batch = 32, micro_batch = 0, buckets = 1;
  double learning_rate = 1e-4;
  std::string schedule = "onecycle_linear";
  int64_t warmup = 0, warmup_epochs = 0;
  std::string optimizer = "adamw";
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool cycle_beta1 = false;
  double clip_norm = 0, label_smoothing = 0;
  std::string precision = "fp32", selection = "best_dev";
  int64_t eval_every = 50, eval_epochs = 0, patience = 0, log_every = 10, max_skips = 20;
  std::string init_sha256, freeze, reinit, extend;
};
[[nodiscard]] const Schema<TrainingOptions>& training_schema();

// "eval." in a plan.
struct EvalOptions {
  bool parity = false;
  int64_t dev_batches = 0, batch = 0;
  std::string shifts;
};
[[nodiscard]] const Schema<EvalOptions>& eval_schema();
// Under which the test is made once more.
[[nodiscard]] std::vector<data::Shift> shifts_of(const RunPlan& plan);

// What the user asked for, as words.
struct PlanRequest {
  std::string task, model, protocol;  // protocol "": the task's default
  int64_t seed = 0;
  std::vector<ValueLayer> layers = {};  // experiment files and command line, weakest first
  int64_t steps = 0;                    // --steps N: also scales the warm-up; 0: not given
  int64_t epochs = 0;                   // --epochs N: also scales the warm-up, to whole epochs; 0: not given
  int64_t length = 0;                   // --length N; 0: not given
  bool fast = false;                    // --fast: a few batches of everything
};

// Everything a plan's names stand for.
struct PlanParts {
  const data::DatasetDescriptor* dataset = nullptr;
  const Protocol* protocol = nullptr;
  const models::FamilyDescriptor* family = nullptr;
  attention::Resolved attention;
  std::string called;  // the words for the model, where they name a whole one ("mrs-deit"); else empty
};

// The words for a model: "[family/]attention", a family alone (with softmax), "mrs-" and a family (with mrs-softmax).
struct ModelWords {
  const models::FamilyDescriptor* family = nullptr;
  std::string attention;  // not resolved yet; "none" where the family takes none
  std::string called;     // the words, where they name a whole model; else empty
};
[[nodiscard]] ModelWords read_model(const std::string& model, const std::string& default_family);
// Every word that names a model by itself, sorted: attentions, families, both with "mrs-".
[[nodiscard]] std::vector<std::string> model_names();

[[nodiscard]] PlanParts find_parts(const std::string& task, const std::string& model, const std::string& protocol);

// What nobody asked for by itself, weakest first: the task's own values for the attention (task_defaults.h), then the
// protocol's, then those that the attention wants of any model (Descriptor::model_defaults).
[[nodiscard]] std::vector<ValueLayer> preset_layers(const PlanParts& parts);

// UserError on any wrong name, key, value or combination; touches no file and no device.
[[nodiscard]] RunPlan resolve_plan(const PlanRequest& request);
// A plan from its stored form (plan.json, a checkpoint): values are checked again, origins are "stored plan".
[[nodiscard]] RunPlan stored_plan(const Json& plan);

// A protocol's precision is a wish: on a CPU, which has no TF32 and only imitates fp16, fp32 takes its place, and the
// value's origin says so. What was asked for by itself stays.
void suit_device(RunPlan& plan, bool on_cuda);
// Why the plan's precision is a bad choice there, and what is better; "" mostly.
[[nodiscard]] std::string precision_warning(const RunPlan& plan, bool on_cuda);
// Likewise of a number of steps that was asked for where the plan counts epochs in its place.
[[nodiscard]] std::string epochs_warning(const RunPlan& plan);
// Likewise of the plan's number of layers, which its attention may find too large.
[[nodiscard]] std::string depth_warning(const RunPlan& plan);

// Groups of options that these parts have, for help and validation.
[[nodiscard]] std::vector<OptionGroup> option_groups(const PlanParts& parts);

// What the plan's data looks like, as far as it is known without its files.
[[nodiscard]] data::DataShape planned_shape(const RunPlan& plan);

// For the data as it is found; without a shape, as planned.
[[nodiscard]] models::ModelRequest model_request(const RunPlan& plan, const data::DataShape& shape);
[[nodiscard]] std::shared_ptr<models::Model> build_model(const RunPlan& plan, const data::DataShape& shape);
[[nodiscard]] int64_t padded_len(const RunPlan& plan, const data::DataShape& shape);
[[nodiscard]] models::ModelRequest model_request(const RunPlan& plan);
[[nodiscard]] std::shared_ptr<models::Model> build_model(const RunPlan& plan);
[[nodiscard]] int64_t padded_len(const RunPlan& plan);

}  // namespace xformer::plan
