// Every attention with a task of every kind: a plan, or a refusal that says why.
#include <catch2/catch.hpp>
#include <map>

#include "core/error.h"
#include "plan/options.h"

namespace xformer::plan::attention_plans_test {

namespace {

RunPlan plan_for(const std::string& task, const std::string& model) {
  PlanRequest request;
  request.task = task;
  request.model = model;
  return resolve_plan(request);
}

// Of the tasks that are alike in what a model is made from, family, kind of answer and input, the first by its name.
// The others differ from it in sizes; task_plans_test.cpp plans them all, with three attentions.
std::map<std::string, std::string> task_of_each_kind() {
  std::map<std::string, std::string> found;
  for (const data::DatasetDescriptor& task : data::datasets().all()) {
    const std::string name = task.member ? task.name.substr(0, task.name.find('<')) + "any" : task.name;
    const RunPlan plan = plan_for(name, "softmax");
    const models::ModelRequest request = model_request(plan);
    const models::InputSpec& input = request.input;
    found.try_emplace(
        fmt::format("{}, {}{}, {} of {}{}{}", plan.family, planned_shape(plan).target.kind,
                    request.causal ? ", causal" : "", input.sequences, input.vocabulary > 0 ? "ids" : "numbers",
                    input.columns > 0 ? ", of an image" : "", input.categories.empty() ? "" : ", codes among them"),
        name);
  }
  return found;
}

}  // namespace

TEST_CASE("every attention has a plan for a task of every kind, or is refused with the reason") {
  const std::map<std::string, std::string> tasks = task_of_each_kind();
  CHECK(tasks.size() >= 10);
  for (const auto& [kind, task] : tasks) {
    const RunPlan usual = plan_for(task, "softmax");
    const bool causal = model_request(usual).causal;
    for (const std::string& name : attention::distinct_names()) {
      CAPTURE(kind, task, name);
      const attention::Resolved attention = attention::resolve(name);
      std::string refusal;
      try {
        const RunPlan plan = plan_for(task, name);
        CHECK(plan.attention == name);
        CHECK(plan.family == usual.family);
      } catch (const UserError& error) {
        refusal = error.what();
      } catch (const std::exception& error) {
        FAIL_CHECK("another kind of error: " << error.what());
        continue;
      }
      CAPTURE(refusal);
      // A whole layer brings norms and a feed-forward part of its own, which is what a family may have no room for.
      const bool layer = attention.base->build_block != nullptr && refusal.find("whole layer") != std::string::npos;
      const bool no_causal_form = causal && !attention.traits().causal_ok;
      const bool no_scales = attention.decorator != nullptr && usual.options.values.value("model.heads", 0) == 1;
      CHECK(refusal.empty() == !(layer || no_causal_form || no_scales));
      if (layer || (no_causal_form && !no_scales)) CHECK(refusal.find(name) != std::string::npos);
      if (no_causal_form && !no_scales && !layer) CHECK(refusal.find("no causal form") != std::string::npos);
      if (no_scales) CHECK(refusal.find("1 heads") != std::string::npos);
    }
  }
}

}  // namespace xformer::plan::attention_plans_test
