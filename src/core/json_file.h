// JSON files that people write or touch.
#pragma once

#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"

namespace xformer {

// DataError naming file and place when it is missing or no JSON.
[[nodiscard]] Json read_json_file(const Path& path);

// One JSON object and all that it "extends" (a path beside the file), "extends" taken away. The nearer file's value of
// a key wins; the objects under the keys of `merged` are merged key by key. UserErrors: no object, a circle.
[[nodiscard]] Json read_extended_json(const Path& path, const std::vector<std::string>& merged = {});

}  // namespace xformer
