// What papers and their code set attentions to on some tasks, where that differs from an option's own default: the one
// place for it. A protocol's values, files and the command line come later and win.
#pragma once

#include <string>
#include <vector>

#include "attention/descriptor.h"
#include "core/run_plan.h"

namespace xformer::plan {

struct TaskDefault {
  std::vector<std::string> attentions;  // their mrs- forms too
  std::vector<std::string> tasks;       // names, * is any text
  std::string option;                   // of the attention, without "attention."
  Json value;
  std::string source;  // who prints it, and where
};

[[nodiscard]] const std::vector<TaskDefault>& task_defaults();
// Those of one attention.
[[nodiscard]] std::vector<TaskDefault> task_defaults_of(const attention::Resolved& attention);
// Those of one attention on one task, by full key; empty where there are none.
[[nodiscard]] ValueLayer task_default_layer(const attention::Resolved& attention, const std::string& task);

}  // namespace xformer::plan
