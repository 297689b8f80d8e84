// Plans of an objective over a task's own inputs: what they say and which models they refuse.
#include <catch2/catch.hpp>

#include "plan/options.h"
#include "scratch.h"

namespace xformer::plan::objective_test {

using Catch::Matchers::Contains;

namespace {

PlanRequest asked(const std::string& task, const std::string& model, const Json& values) {
  PlanRequest request;
  request.task = task;
  request.model = model;
  request.layers.push_back({"--set", values});
  return request;
}

std::string refusal(const std::string& task, const std::string& model, const Json& values) {
  return scratch::message_of<UserError>([&] { static_cast<void>(resolve_plan(asked(task, model, values))); });
}

}  // namespace

TEST_CASE("without an objective a plan is the one that it was", "[objective]") {
  const RunPlan plan = resolve_plan(asked("listops", "linear", Json::object()));
  Json old = plan.to_json();
  for (const char* key : {"data.objective", "data.masked_share", "model.causal"}) {
    CHECK(plan.options.neutral.at(key) == plan.options.values[key]);
    old.erase(key);
  }
  CHECK(plan_differences(old, plan).empty());
  CHECK(resolve_plan(asked("listops", "linear", {{"data.objective", "masked"}})).hash() != plan.hash());
}

TEST_CASE("an objective's model reads the task's ids and the one that hides, and answers at every place",
          "[objective]") {
  const auto request = [](const std::string& task, const Json& values) {
    return model_request(resolve_plan(asked(task, "linear", values)));
  };
  const models::ModelRequest own = request("listops", Json::object()),
                             masked = request("listops", {{"data.objective", "masked"}}),
                             causal = request("listops", {{"data.objective", "causal"}, {"model.causal", true}});
  CHECK((!own.per_position && masked.per_position && causal.per_position));
  CHECK((!own.causal && !masked.causal && causal.causal));
  CHECK(masked.input.vocabulary == own.input.vocabulary + 1);
  CHECK((masked.input.masks && !causal.input.masks && causal.input.vocabulary == own.input.vocabulary));
  CHECK(masked.outputs == own.input.vocabulary - 1);
  CHECK(request("listops", {{"model.causal", true}}).causal);
}

TEST_CASE("what an objective cannot be asked of is refused with the reason and the way out", "[objective]") {
  const Json masked{{"data.objective", "masked"}};
  CHECK_THAT(refusal("listops", "linear", {{"data.objective", "causal"}}),
             Contains("bidirectional") && Contains("model.causal=true") && Contains("data.objective=masked"));
  CHECK_THAT(refusal("listops", "linformer", {{"data.objective", "causal"}, {"model.causal", true}}),
             Contains("linformer has no causal form"));
  CHECK_THAT(refusal("listops", "lstm", masked), Contains("lstm") && Contains("take encoder/softmax"));
  CHECK_THAT(refusal("listops", "block-encoder/linear", masked), Contains("take encoder/linear"));
  CHECK_THAT(refusal("retrieval", "linear", masked), Contains("pairs of sequences"));
  CHECK_THAT(refusal("adding", "linear", masked), Contains("numbers"));
  CHECK_THAT(refusal("bytes/enwik8", "linear", masked), Contains("every place already"));
  CHECK_THAT(refusal("listops", "linear", {{"data.objective", "maskd"}}), Contains("did you mean 'masked'?"));
  CHECK_THAT(refusal("listops", "linear", {{"data.masked_share", 0.5}}), Contains("nothing is masked"));
  CHECK_THAT(refusal("listops", "linear", {{"data.objective", "masked"}, {"training.label_smoothing", 0.1}}),
             Contains("training.label_smoothing"));
  CHECK_THAT(refusal("listops", "block-encoder/linear", {{"model.causal", true}}), Contains("no causal form"));
}

}  // namespace xformer::plan::objective_test
