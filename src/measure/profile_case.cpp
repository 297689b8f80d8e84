// What is profiled, from what was asked for.
#include <algorithm>

#include "core/names.h"
#include "measure/profile.h"

namespace xformer::measure {

BenchCase profile_case(const ProfileOptions& options) {
  XF_CHECK(!options.model.empty(), UserError,
           "--model is missing, e.g. --model softmax-fused (`xformer list` shows the names)");
  XF_CHECK(options.mode == "train" || options.mode == "inference", UserError, "--mode: {}",
           unknown_name_message("mode", options.mode, {"train", "inference"}));
  XF_CHECK(options.length >= 0 && options.batch >= 0, UserError, "--length and --batch count from 1");
  XF_CHECK(options.steps >= 1 && options.warmup >= 0, UserError, "--steps counts from 1 and --warmup from 0");
  const plan::PlanParts parts = plan::find_parts(options.task, options.model, options.protocol);
  plan::PlanRequest request;
  request.task = options.task;
  request.model = options.model;
  request.protocol = options.protocol;
  // A length of the user's choice is exact, whatever the family would pad real data to. --set may ask for its own rule.
  const bool has_rule = std::any_of(parts.family->options.begin(), parts.family->options.end(),
                                    [](const OptionInfo& option) { return option.name == "length_rule"; });
  if (options.length > 0 && has_rule) request.layers.push_back({"--length", {{"model.length_rule", "exact"}}});
  if (options.batch > 0) request.layers.push_back({"--batch", {{"training.batch", options.batch}}});
  for (const ValueLayer& layer : options.layers) request.layers.push_back(layer);
  BenchCase one;
  one.plan = plan::resolve_plan(request);
  one.length = options.length > 0 ? options.length : plan::padded_len(one.plan);
  one.batch = one.plan.options.values["training.batch"].get<int64_t>();
  one.shape = plan::planned_shape(one.plan);
  one.shape.max_len = one.length;
  one.request = plan::model_request(one.plan, one.shape);
  const int64_t padded = parts.family->padded_len(one.request.model_options, one.length);
  XF_CHECK(padded == one.length, UserError, "--length {}: {} would pad it to {}", one.length, one.plan.model, padded);
  parts.family->check(one.request);
  return one;
}

}  // namespace xformer::measure
