// Options as JSON, from the one declaration in a Schema, and tables of them for `describe` and the documentation.
#pragma once

#include <string>
#include <vector>

#include "core/schema.h"

namespace xformer::reporting {

// [{"name", "type", "default", "range", "help", "choices"}]; type is bool, integer, real, text or integer-list,
// default has the option's own JSON type, choices is empty where any value in range will do. `prefix` goes before
// each name ("attention.").
[[nodiscard]] Json options_json(const std::vector<OptionInfo>& options, const std::string& prefix);

// Of that: aligned columns (key, default, range, help), each wrapped so that no line is longer than `width`.
[[nodiscard]] std::string options_table_text(const Json& options, int width);
[[nodiscard]] std::string options_table_markdown(const Json& options);

}  // namespace xformer::reporting
