// Names that end in the path of a file of one's own: `script:FILE` (script.h) and `plugin:FILE` (plugin.h), with or
// without a family and a decorator in front.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "core/schema.h"

namespace xformer::attention {

inline constexpr std::string_view kScript = "script:", kPlugin = "plugin:";

// Where the file's part of a name begins ("mrs-script:a.pt": at 4); npos for a name of the program's own.
inline size_t own_file_at(const std::string& name) { return std::min(name.find(kScript), name.find(kPlugin)); }

// What stands behind the colon of "script:FILE" or "plugin:FILE"; UserError where nothing does.
[[nodiscard]] std::string own_file_path(const std::string& name);

// The option that makes a file part of every plan with it: a value other than the file's hash is refused.
[[nodiscard]] OptionInfo hash_option(const std::string& path, const std::string& sha256);

}  // namespace xformer::attention
