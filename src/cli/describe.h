// Everything the registries know, as JSON: one object per name.
#pragma once

#include "plan/options.h"

namespace xformer::cli {

// {"name", "kind": "attention", "title", "paper", "class", "complexity", "traits", "options", ...}
[[nodiscard]] Json attention_json(const attention::Resolved& attention);
[[nodiscard]] Json model_json(const models::FamilyDescriptor& family);
[[nodiscard]] Json task_json(const data::DatasetDescriptor& task);
// Arrays over all names, the decorated attentions included.
[[nodiscard]] Json attentions_json();
[[nodiscard]] Json models_json();
[[nodiscard]] Json tasks_json();

}  // namespace xformer::cli
