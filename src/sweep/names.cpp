#include "sweep/names.h"

#include <algorithm>

#include "core/error.h"
#include "core/names.h"
#include "data/datasets.h"
#include "plan/options.h"

namespace xformer::sweep {

namespace {

bool is_task(const std::string& name) {
  try {
    static_cast<void>(data::find_dataset(name));
    return true;
  } catch (const UserError&) {
    return false;
  }
}

bool is_model(const std::string& name) {
  try {
    static_cast<void>(plan::find_parts("listops", name, ""));
    return true;
  } catch (const UserError&) {
    return false;
  }
}

struct AskedNames {
  std::vector<std::string> tasks, models;
};

// Of runs and stages.
AskedNames asked_names(const Experiment& experiment) {
  AskedNames result;
  for (const Ask& ask : experiment.tasks) result.tasks.push_back(ask.task);
  for (const Ask& ask : experiment.models) result.models.push_back(ask.model);
  for (const Stage& stage : experiment.stages) {
    result.tasks.push_back(stage.ask.task);
    result.models.push_back(stage.ask.model);
  }
  return result;
}

void check_waiting(const Experiment& experiment, const AskedNames& asked) {
  const auto check = [&](const std::vector<std::string>& names, const std::vector<std::string>& wanted,
                         const char* kind, bool (*registered)(const std::string&)) {
    for (const std::string& name : names) {
      XF_CHECK(!registered(name), UserError,
               "{}: waits_for: the {} '{}' is registered: take it off the list, nothing waits for it any more",
               experiment.file.string(), kind, name);
      XF_CHECK(experiment.bench.is_array() || is_among(wanted, name), UserError,
               "{}: waits_for: the experiment asks for no {} '{}'", experiment.file.string(), kind, name);
    }
  };
  check(experiment.waits_for_tasks, asked.tasks, "task", is_task);
  check(experiment.waits_for_models, asked.models, "model", is_model);
}

// A pattern that fits no run here may come from a larger experiment that this one extends: it is misspelt only if it
// fits no name at all.
void check_patterns(const Experiment& experiment, const AskedNames& asked) {
  const auto with = [](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<std::string> tasks = with(data::datasets().names(), asked.tasks);
  const std::vector<std::string> models = with(plan::model_names(), asked.models);
  const auto check = [&](const char* key, const char* kind, const std::string& pattern,
                         const std::vector<std::string>& names, bool (*registered)(const std::string&)) {
    const bool fits = std::any_of(names.begin(), names.end(),
                                  [&](const std::string& name) { return matches_pattern(pattern, name); });
    XF_CHECK(pattern.empty() || fits || registered(pattern), UserError, "{}: {}: {}", experiment.file.string(), key,
             unknown_name_message(kind, pattern, names));
  };
  const auto check_both = [&](const char* key, const Condition& where) {
    check(key, "task", where.task, tasks, is_task);
    check(key, "model", where.model, models, is_model);
  };
  for (const auto& [where, more] : experiment.cases) check_both("cases", where);
  for (const Condition& where : experiment.exclude) check_both("exclude", where);
}

bool leaves_a_run(const Experiment& experiment) {
  for (const Ask& task : experiment.tasks)
    for (const Ask& model : experiment.models)
      if (!experiment.excluded(task.task, model.model)) return true;
  return false;
}

}  // namespace

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& one) { return canonical_name(one) == canonical_name(name); });
}

void check_names(const Experiment& experiment) {
  const AskedNames asked = asked_names(experiment);
  check_waiting(experiment, asked);
  check_patterns(experiment, asked);
  XF_CHECK(experiment.exclude.empty() || leaves_a_run(experiment), UserError, "{}: exclude leaves no run",
           experiment.file.string());
}

}  // namespace xformer::sweep
