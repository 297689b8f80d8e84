// What `xformer describe` knows beside attentions, families and tasks: protocols, schedules, optimisers, metrics, and
// the words that other descriptions use (classes of attention, traits).
#pragma once

#include <string>

#include "core/json.h"

namespace xformer::engine {

// [{"name", "kind", "aliases", "title", ...}]; a protocol has "protocols", one for each task: {"name", "values"}.
[[nodiscard]] Json terms_json();

// In words: "FP" -> "fixed pattern: ...". Empty for a word that is none.
[[nodiscard]] std::string class_meaning(const std::string& method_class);
[[nodiscard]] std::string trait_meaning(const std::string& trait);

}  // namespace xformer::engine
