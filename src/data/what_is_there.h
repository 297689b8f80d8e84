// For messages about a folder that lacks what was looked for.
#pragma once

#include <string>
#include <vector>

#include "core/files.h"

namespace xformer::data {

// "found a.txt, b/ and 12 more", sorted, or "the folder is empty".
[[nodiscard]] std::string what_is_there(const Path& folder);

// The same of names that are known; `nothing` is said when there are none.
[[nodiscard]] std::string found_names(std::vector<std::string> names, const std::string& nothing);

}  // namespace xformer::data
