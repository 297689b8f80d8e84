// JSON files that programs write and people may touch.
#pragma once

#include "core/files.h"
#include "core/json.h"

namespace xformer {

// DataError naming file and place when it is missing or no JSON.
[[nodiscard]] Json read_json_file(const Path& path);

}  // namespace xformer
