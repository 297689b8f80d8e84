// A sweep by words alone: every combination of models, tasks, seeds and values.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"

namespace xformer::engine {

struct GridArguments {
  std::vector<std::string> models, tasks, settings;  // key=value, key=value,value
  std::string protocol;
  int64_t steps = 0, length = 0;

  void add_to(CLI::App& command);
  // Some of it was given, so no file is expected. UserError where models or tasks are missing.
  [[nodiscard]] bool given() const;
  // What a file of the same runs would hold (docs/experiments.md). Commas make an axis of an option that takes a number
  // or a word of a choice; a list and free text are one value.
  [[nodiscard]] Json experiment() const;
  // runs/<tasks>_<models>
  [[nodiscard]] Path usual_folder() const;
};

}  // namespace xformer::engine
