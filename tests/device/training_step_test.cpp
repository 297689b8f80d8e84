// Whole training steps on a device: the plugin's operators, walked, between LibTorch's, as a CUDA device runs them.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "data/batches/batcher.h"
#include "device/walked_device.h"
#include "inspect/tiny.h"
#include "kernels/policy_scope.h"
#include "measure/bench.h"
#include "training/step.h"

namespace xformer::training::device_test {

namespace {

using kernels::WalkOrder;

data::HostBatch marks(int64_t number) {
  data::BatchRows rows{{}, 16};
  for (int64_t row = 0; row < 2; ++row) rows.rows.push_back(number * 2 + row);
  data::HostBatch batch;
  data::fill_batch(inspect::MarkTask(), data::Split::kTrain, rows, 2, batch);
  return batch;
}

struct Steps {
  StepSums sums;
  std::vector<std::pair<std::string, at::Tensor>> gradients;  // of the last step
};

Steps steps_of(models::Model& model, const data::DataShape& shape, const plan::TrainingOptions& options,
               const std::function<data::HostBatch(int64_t step)>& batch, const at::Device& device) {
  model.to(device);
  TrainStep step(model, shape, options, device);
  for (int64_t i = 0; i < 2; ++i) step.run(batch(i), i, {1e-3, 0.9});
  Steps result;
  for (const auto& parameter : model.named_parameters())
    if (parameter->grad().defined()) result.gradients.emplace_back(parameter.key(), parameter->grad().cpu().clone());
  result.sums = step.read_and_reset();
  return result;
}

// `smooth`: the readout's hidden numbers are far from where relu turns, which a rounding may cross.
Steps steps_on(const at::Device& device, const std::string& name, const std::string& precision = "fp32",
               bool smooth = false) {
  plan::TrainingOptions options;
  options.precision = precision;
  options.batch = 2;
  options.clip_norm = 1;
  const auto model = inspect::build_tiny_model(name);
  if (smooth) {
    const at::NoGradGuard no_grad;
    model->named_parameters()["classifier_in.bias"].fill_(5);
  }
  return steps_of(*model, inspect::MarkTask().info().shape, options, marks, device);
}

double largest(const Steps& steps) {
  double result = 0;
  for (const auto& [name, gradient] : steps.gradients)
    if (gradient.numel() > 0) result = std::max(result, gradient.abs().max().item<double>());
  return result;
}

}  // namespace

// The same steps, but for what rounding does.
void check_same(const Steps& there, const Steps& here) {
  CHECK(there.sums.loss == Approx(here.sums.loss).epsilon(1e-4));
  CHECK(there.sums.gradient_norm == Approx(here.sums.gradient_norm).epsilon(1e-3));
  REQUIRE(there.gradients.size() == here.gradients.size());
  const double size = largest(here);
  for (size_t i = 0; i < here.gradients.size(); ++i) {
    CAPTURE(here.gradients[i].first);
    CHECK((there.gradients[i].second - here.gradients[i].second).abs().max().item<double>() < 1e-3 * size);
  }
}

// How far gradients are apart, of the largest; those of fp16 are scaled.
double apart(const Steps& steps, const Steps& meant) {
  const double size = largest(meant), scale = size / largest(steps);
  double result = 0;
  for (size_t i = 0; i < meant.gradients.size(); ++i) {
    const at::Tensor difference = steps.gradients[i].second * scale - meant.gradients[i].second;
    if (difference.numel() > 0) result = std::max(result, difference.abs().max().item<double>() / size);
  }
  return result;
}

// In bf16 under the operators' own checks.
TEST_CASE("steps in 16 bits on a device are as near to those in float as where LibTorch has the maps") {
  kernels::set_walk_order(WalkOrder::kForward);
  for (const std::string precision : {"bf16", "fp16"})
    for (const std::string name : {"none", "softmax-fused", "softmax", "linear", "performer", "linformer", "mrs-linear",
                                   "nystromformer", "longformer", "fmm", "paramixer-chord", "reformer"}) {
      CAPTURE(name, precision);
      const Steps meant = steps_on(at::kCPU, name, "fp32", /*smooth=*/true);
      const auto with = [&](kernels::Policy policy) {
        const kernels::PolicyScope scope(policy);
        kernels::reset_backends();
        return steps_on(kernels::kWalkedDevice, name, precision, /*smooth=*/true);
      };
      const Steps composed = with(kernels::Policy::kComposite);
      const Steps got = with(precision == "bf16" ? kernels::Policy::kCheck : kernels::Policy::kAuto);
      const auto ran = kernels::backends_run();
      for (const char* maps : {"linear", "normed_linear", "branch"})
        if (ran.contains(maps)) CHECK(ran.at(maps) == "fused-hpu");
      CHECK((ran.contains("classifier") && ran.at("classifier") == "fused-hpu"));
      CHECK(got.sums.loss == Approx(meant.sums.loss).epsilon(0.01));
      CHECK(apart(got, meant) < 1.5 * apart(composed, meant) + 0.005);
    }
}

// Other heads of several scales are of the same operators.
bool goes_without(const std::string& name) {
  return name.starts_with("mrs-") && name != "mrs-linformer" && name != "mrs-performer";
}

TEST_CASE("two steps on a device are those of the CPU, for every attention") {
  kernels::set_walk_order(WalkOrder::kForward);
  for (const std::string& name : attention::distinct_names()) {
    if (goes_without(name)) continue;
    CAPTURE(name);
    const Steps here = steps_on(at::kCPU, name);
    kernels::reset_backends();
    Steps there;
    try {
      there = steps_on(kernels::kWalkedDevice, name);
    } catch (const std::exception& error) {
      FAIL_CHECK(error.what());
      continue;
    }
    const auto ran = kernels::backends_run();
    if (ran.contains("residual_norm")) CHECK(ran.at("residual_norm") == "fused-hpu");  // Paramixer has no norm
    check_same(there, here);
  }
}

struct OtherModel {
  std::string task, model;
  int64_t length = 24;
  Json values = {{"model.dim", 32}, {"model.head_dim", 16}, {"model.ff_dim", 32}, {"model.layers", 1}};
};

TEST_CASE("families and kinds of tasks take the same steps on a device") {
  const std::vector<OtherModel> models = {{"adding", "linear"},
                                          {"mqar", "linear"},
                                          {"selective-copy", "softmax-fused"},
                                          {"bytes/enwik8", "softmax-fused"},
                                          {"bytes/enwik8", "transformer-xl"},
                                          {"furthest-vector", "bigbird-etc"},
                                          {"text-mlm/c4", "combiner-fixed"},
                                          {"retrieval", "performer"},
                                          {"tabular/adult", "mrs-linformer", 24, {{"model.dim", 32}}},
                                          {"speech-commands", "lstm", 24, {}},
                                          {"imagenet", "nystromformer"}};
  kernels::set_walk_order(WalkOrder::kForward);
  for (const OtherModel& one : models) {
    CAPTURE(one.task, one.model);
    try {
      measure::BenchOptions wanted;
      wanted.task = one.task, wanted.models = {one.model};
      wanted.lengths = {one.length}, wanted.batches = {2};
      wanted.layers.push_back({"test", one.values});
      wanted.layers.push_back({"test", {{"training.precision", "fp32"}}});
      const measure::BenchCase found = measure::bench_cases(wanted).front();
      const plan::TrainingOptions options = plan::training_schema().read(found.plan.group("training"));
      const auto on = [&](const at::Device& device) {
        const auto model = models::all_families().get(found.plan.family).build(found.request);
        return steps_of(
            *model, found.shape, options, [&](int64_t) { return measure::bench_batch(found); }, device);
      };
      check_same(on(kernels::kWalkedDevice), on(at::kCPU));
    } catch (const std::exception& error) {
      FAIL_CHECK(error.what());
    }
  }
}

TEST_CASE("a step on a device has the same bits whatever order blocks and threads come in") {
  for (const std::string name :
       {"softmax-fused", "linear", "mrs-performer", "longformer", "nystromformer", "paramixer-chord", "logsparse",
        "improved-clustered", "adaptively-sparse", "reformer"}) {
    CAPTURE(name);
    kernels::set_walk_order(WalkOrder::kForward);
    const Steps first = steps_on(kernels::kWalkedDevice, name);
    kernels::set_walk_order(WalkOrder::kBackward);
    const Steps second = steps_on(kernels::kWalkedDevice, name);
    CHECK(first.sums.loss == second.sums.loss);
    for (size_t i = 0; i < first.gradients.size(); ++i)
      CHECK(at::equal(first.gradients[i].second, second.gradients[i].second));
  }
}

}  // namespace xformer::training::device_test
