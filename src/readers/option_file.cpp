#include "readers/option_file.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace xformer::readers {
namespace {

constexpr int kDeepest = 16;

// The groups that a plan's options have: as keys of objects they are sections, as beginnings of keys they are written.
bool is_group(const std::string& key) {
  static const std::set<std::string> kGroups{"data", "model", "attention", "training", "eval"};
  return kGroups.contains(key);
}

Json with_dotted_keys(const Json& json, const std::string& name) {
  if (json.is_array()) {
    Json result = Json::array();
    for (const Json& element : json) result.push_back(with_dotted_keys(element, name));
    return result;
  }
  if (!json.is_object()) return json;
  Json result = Json::object();
  const auto add = [&](const std::string& key, const Json& value) {
    XF_CHECK(!result.contains(key), UserError, "{}: the key '{}' is there twice", name, key);
    result[key] = value;
  };
  for (const auto& [key, value] : json.items()) {
    const Json inner = with_dotted_keys(value, name);
    if (!is_group(key) || !inner.is_object()) {
      add(key, inner);
      continue;
    }
    for (const auto& [option, set] : inner.items()) add(key + "." + option, set);
  }
  return result;
}

void update(Json& result, const Json& stronger, const std::vector<std::string>& merged) {
  for (const auto& [key, value] : stronger.items()) {
    const bool merge = std::find(merged.begin(), merged.end(), key) != merged.end();
    if (merge && value.is_object() && result.contains(key) && result[key].is_object()) result[key].update(value);
    else result[key] = value;
  }
}

Json read_extended(const Path& path, const std::vector<std::string>& merged, int depth) {
  XF_CHECK(depth < kDeepest, UserError, "{}: files extend each other in a circle", path.string());
  Json own = read_option_file(path);
  if (!own.contains("extends")) return own;
  const Json parents = own["extends"].is_array() ? own["extends"] : Json::array({own["extends"]});
  own.erase("extends");
  Json result = Json::object();
  for (const Json& parent : parents) {
    XF_CHECK(parent.is_string(), UserError, "{}: extends: expected the path of another file, or a list of them",
             path.string());
    update(result, read_extended(path.parent_path() / parent.get<std::string>(), merged, depth + 1), merged);
  }
  update(result, own, merged);
  return result;
}

}  // namespace

bool is_option_file(const Path& path) {
  const std::string ending = path.extension();
  return ending == ".json" || ending == ".yaml" || ending == ".yml" || ending == ".toml";
}

Json parse_commented_json(const std::string& text, const std::string& name) {
  std::vector<std::set<std::string>> open;  // the keys of the objects around
  const auto refuse_twice = [&](int, nlohmann::json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key)
      XF_CHECK(open.back().insert(value.get<std::string>()).second, UserError, "{}: the key '{}' is there twice", name,
               value.get<std::string>());
    return true;
  };
  try {
    return Json::parse(text, refuse_twice, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    const std::string what = error.what();
    const size_t place = what.find("at line");
    throw UserError(fmt::format("{}: not valid JSON {}", name, what.substr(place == std::string::npos ? 0 : place)));
  }
}

Json read_option_file(const Path& path) {
  const std::string text = read_file(path), ending = path.extension(), name = path.string();
  const Json json = ending == ".toml"                       ? parse_toml(text, name)
                    : ending == ".yaml" || ending == ".yml" ? parse_yaml(text, name)
                                                            : parse_commented_json(text, name);
  XF_CHECK(json.is_object(), UserError, "{}: expected one {}, got {}", name,
           ending == ".json" ? "JSON object" : "table of keys and values", json.type_name());
  return with_dotted_keys(json, name);
}

Json read_extended_file(const Path& path, const std::vector<std::string>& merged) {
  return read_extended(path, merged, 0);
}

}  // namespace xformer::readers
