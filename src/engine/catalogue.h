// What cli/catalogue.h describes, from the registries.
#pragma once

#include <string>

#include "attention/descriptor.h"
#include "core/json.h"
#include "data/datasets.h"

namespace CLI {
class App;
}

namespace xformer::engine {

// {"name", "kind": "attention", "title", "paper", "class", "complexity", "traits", "options", ...}
[[nodiscard]] Json attention_json(const attention::Resolved& attention);
// The same of words for a whole model: "mrs-deit", "vit/linear".
[[nodiscard]] Json words_json(const std::string& model);
[[nodiscard]] Json task_json(const data::DatasetDescriptor& task);
[[nodiscard]] Json catalogue_json(const CLI::App& program);

}  // namespace xformer::engine
