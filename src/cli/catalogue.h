// What the program knows by name, as JSON:
//
//   verbs       [{"name", "help", "options", "commands"}], in the order of the help text (completion.h)
//   attentions  [{"name", "kind", "title", "paper", "class", "traits", "options", ...}], the decorated ones included
//   models      the same of families
//   tasks       the same of data sets, each with its protocols
//   whole_models  the same of words that name a family with multi-resolution heads ("mrs-deit")
//   terms       what else can be described: protocols, schedules, optimisers, metrics, classes of attention, traits
//   groups      of options that belong to no name: training, eval
//
// The engine makes it from its registries, and the build writes it once from the engine, so that who only asks about
// names loads no LibTorch.
#pragma once

#include <functional>
#include <string>

#include "core/json.h"

namespace xformer::cli {

struct Catalogue {
  std::function<Json()> read;
  // The facts of a name that is not in it (`uea/<any set>`, decorated aliases); throws what is wrong with any other.
  std::function<Json(const std::string& name)> other;
};

}  // namespace xformer::cli
