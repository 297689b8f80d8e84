#include "core/json_file.h"

#include <algorithm>

#include "core/error.h"

namespace xformer {

namespace {

constexpr int kDeepest = 16;

Json read_extended(const Path& path, const std::vector<std::string>& merged, int depth) {
  XF_CHECK(depth < kDeepest, UserError, "{}: files extend each other in a circle", path.string());
  const Json own = read_json_file(path);
  XF_CHECK(own.is_object(), UserError, "{}: expected one JSON object, got {}", path.string(), own.type_name());
  Json result = Json::object();
  if (own.contains("extends")) {
    XF_CHECK(own["extends"].is_string(), UserError, "{}: extends: expected the path of another file", path.string());
    result = read_extended(path.parent_path() / own["extends"].get<std::string>(), merged, depth + 1);
  }
  for (const auto& [key, value] : own.items()) {
    if (key == "extends") continue;
    const bool merge = std::find(merged.begin(), merged.end(), key) != merged.end();
    if (merge && value.is_object() && result.contains(key) && result[key].is_object()) result[key].update(value);
    else result[key] = value;
  }
  return result;
}

}  // namespace

Json read_json_file(const Path& path) {
  try {
    return Json::parse(read_file(path));
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError(fmt::format("{}: not valid JSON: {}", path.string(), error.what()));
  }
}

Json read_extended_json(const Path& path, const std::vector<std::string>& merged) {
  return read_extended(path, merged, 0);
}

}  // namespace xformer
