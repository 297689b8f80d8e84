// Tables of options for `describe`, for `--help` and for the documentation, all from the one declaration in
// a Schema. `prefix` goes before each name ("attention.").
#pragma once

#include <string>
#include <vector>

#include "core/schema.h"

namespace xformer::reporting {

// Aligned columns (key, default, range, help), each wrapped so that no line is longer than `width`.
[[nodiscard]] std::string options_table_text(const std::vector<OptionInfo>& options, const std::string& prefix,
                                             int width);
[[nodiscard]] std::string options_table_markdown(const std::vector<OptionInfo>& options, const std::string& prefix);

// [{"name", "type", "default", "range", "help", "choices"}]; type is bool, integer, real, text or integer-list,
// default has the option's own JSON type, choices is empty where any value in range will do.
[[nodiscard]] Json options_json(const std::vector<OptionInfo>& options, const std::string& prefix);

}  // namespace xformer::reporting
