// TOML as JSON, by toml++.
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>

#include "core/error.h"
#include "readers/option_file.h"

namespace xformer::readers {
namespace {

std::string place(const toml::source_region& source) {
  return fmt::format("line {}, column {}", source.begin.line, source.begin.column);
}

Json convert(const toml::node& node, const std::string& name) {
  if (const auto* const text = node.as_string()) return text->get();
  if (const auto* const whole = node.as_integer()) return whole->get();
  if (const auto* const real = node.as_floating_point()) return real->get();
  if (const auto* const truth = node.as_boolean()) return truth->get();
  if (const auto* const list = node.as_array()) {
    Json result = Json::array();
    for (const toml::node& element : *list) result.push_back(convert(element, name));
    return result;
  }
  const toml::table* const table = node.as_table();
  XF_CHECK(table != nullptr, UserError, "{}: {}: expected a word, a number, a list or a table, got a time", name,
           place(node.source()));
  // toml++ sorts keys; what people write has an order of its own (the axes of a grid).
  std::vector<std::pair<toml::source_position, std::string>> keys;
  for (const auto& [key, value] : *table) keys.emplace_back(key.source().begin, std::string(key.str()));
  std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.line, a.first.column) < std::pair(b.first.line, b.first.column);
  });
  Json result = Json::object();
  for (const auto& [where, key] : keys) result[key] = convert(*table->get(key), name);
  return result;
}

}  // namespace

Json parse_toml(const std::string& text, const std::string& name) {
  try {
    return convert(toml::parse(text), name);
  } catch (const toml::parse_error& error) {
    throw UserError(fmt::format("{}: not valid TOML at {}: {}", name, place(error.source()), error.description()));
  }
}

}  // namespace xformer::readers
