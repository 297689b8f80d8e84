// Protocols: named, complete sets of data rules, sizes and training settings of a task. protocols/<name>.json, compiled
// in (cmake/EmbeddedTexts.cmake):
//
//   "name", "about"
//   "order": tasks list their protocols by it; the first is a task's default
//   "settings": [{"tasks":   names; * is any text
//                 "extends": another protocol's values for the task come first
//                 "summary": what the protocol is for these tasks
//                 "values":  by plan keys ("training.steps")}]
//
// A task has a protocol when settings name the task; all that do apply, one after the other.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace xformer::plan {

struct Protocol {
  std::string name;
  std::string summary;
  Json values = Json::object();
};

// The protocols of a task, by a dataset's own name; the first is the default.
[[nodiscard]] const std::vector<Protocol>& protocols_of(const std::string& task);
// "" is the task's default; UserError with the nearest name.
[[nodiscard]] const Protocol& find_protocol(const std::string& task, const std::string& name);

// The files, by "order".
[[nodiscard]] const std::vector<Json>& protocol_files();
// The files' texts.
[[nodiscard]] const std::vector<const char*>& protocol_texts();

}  // namespace xformer::plan
