// Files in which people say what they want: configurations and experiments, as JSON, YAML or TOML by their ending.
#pragma once

#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"

namespace xformer::readers {

// Whether a name ends as such a file does: .json, .yaml, .yml, .toml.
[[nodiscard]] bool is_option_file(const Path& path);

// One object; comments are left out. Groups of options may be written as sections: {"training": {"batch": 3}} is
// {"training.batch": 3}. YAML is read by its core schema: 1e-3 is a number, yes a word. Errors: DataError for no such
// file; UserErrors with line and column for what cannot be read, a key that is there twice, no object.
[[nodiscard]] Json read_option_file(const Path& path);

// The same with all that it "extends" (a path beside the file, or a list of them, later ones stronger), "extends" taken
// away. The nearer file's value of a key wins; the objects under the keys of `merged` are merged key by key. UserError:
// a circle.
[[nodiscard]] Json read_extended_file(const Path& path, const std::vector<std::string>& merged = {});

// Each form, from its text; `name` stands in messages.
[[nodiscard]] Json parse_commented_json(const std::string& text, const std::string& name);
[[nodiscard]] Json parse_yaml(const std::string& text, const std::string& name);
[[nodiscard]] Json parse_toml(const std::string& text, const std::string& name);

}  // namespace xformer::readers
