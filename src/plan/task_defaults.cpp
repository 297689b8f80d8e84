#include "plan/task_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/names.h"

namespace xformer::plan {

namespace {

bool names(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

}  // namespace

// Not here: what no source prints (Nystromformer's landmarks and Linformer's k on the UEA archive); what belongs to one
// table of another model's paper (experiments/); scales and sizes of models (protocols/).
const std::vector<TaskDefault>& task_defaults() {
  static const std::vector<TaskDefault> kDefaults{
      // Tay et al. 2020: blocks of 50, and of 64 where sequences are of 1,024 pixels or more.
      {{"local-block", "sinkhorn"},
       {"image", "pathfinder32*", "path-x"},
       "block",
       64,
       "google-research/long-range-arena, configs of image and pathfinder"},
      // The supplement's words: MRA-2 computes 25 % of the blocks.
      {{"mra2", "mra2-s"}, {"uea/*"}, "budget", 0.25, "MrsFormer, supplement A.1"},
      // Column "protocol" of the table: CDIL with so many links; Text's 9 are the option's default.
      {{"paramixer-cdil"}, {"image"}, "links", 3, "Paramixer, supplement Table 1"},
      // Column "hidden size"; the other tasks have the option's 32.
      {{"paramixer-chord", "paramixer-cdil"},
       {"text", "longdoc/*", "hfdna", "mtcdna"},
       "hidden",
       128,
       "Paramixer, supplement Table 1"},
  };
  return kDefaults;
}

std::vector<TaskDefault> task_defaults_of(const attention::Resolved& attention) {
  std::vector<TaskDefault> result;
  for (const TaskDefault& one : task_defaults())
    if (names(one.attentions, attention.base->name)) result.push_back(one);
  return result;
}

ValueLayer task_default_layer(const attention::Resolved& attention, const std::string& task) {
  Json values = Json::object();
  std::vector<std::string> sources;
  for (const TaskDefault& one : task_defaults_of(attention)) {
    if (!names(one.tasks, task)) continue;
    values["attention." + one.option] = one.value;
    if (std::find(sources.begin(), sources.end(), one.source) == sources.end()) sources.push_back(one.source);
  }
  return {{OriginKind::kProtocol, fmt::format("{} on {}: {}", attention.base->name, task, fmt::join(sources, "; "))},
          values};
}

}  // namespace xformer::plan
