// YAML as JSON, by yaml-cpp; what plain words mean is YAML 1.2's core schema.
#include <yaml-cpp/yaml.h>

#include <charconv>

#include "core/error.h"
#include "readers/option_file.h"

namespace xformer::readers {
namespace {

constexpr size_t kMostNodes = 100'000;  // aliases of aliases can stand for more than any memory holds
constexpr int kMostNested = 100;        // and one within its own anchor has no end

[[noreturn]] void fail(const std::string& name, const YAML::Mark& mark, const std::string& what) {
  if (mark.is_null()) throw UserError(fmt::format("{}: not valid YAML: {}", name, what));
  throw UserError(
      fmt::format("{}: not valid YAML at line {}, column {}: {}", name, mark.line + 1, mark.column + 1, what));
}

template <class T>
std::optional<T> number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const bool digits = text.find_first_of("0123456789") != std::string_view::npos;  // no "inf", no "nan"
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return digits && error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

Json scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str") return text;  // quoted, or said to be a word
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (const auto whole = number<int64_t>(text)) return *whole;
  if (const auto real = number<double>(text)) return *real;
  return text;
}

struct Converter {
  const std::string& name;
  size_t nodes = 0;

  Json convert(const YAML::Node& node, int depth = 0) {
    if (++nodes > kMostNodes) fail(name, node.Mark(), "expected at most 100,000 values, aliases counted");
    if (depth > kMostNested)
      fail(name, node.Mark(), "expected at most 100 levels; an alias within its own anchor has no end");
    if (node.IsScalar()) return scalar(node);
    if (node.IsSequence()) {
      Json list = Json::array();
      for (const YAML::Node& element : node) list.push_back(convert(element, depth + 1));
      return list;
    }
    if (!node.IsMap()) return nullptr;
    Json object = Json::object();
    for (const auto& entry : node) {
      const YAML::Node &key = entry.first, &value = entry.second;
      if (!key.IsScalar()) fail(name, key.Mark(), "expected a word as key");
      if (object.contains(key.Scalar()))
        fail(name, key.Mark(), fmt::format("the key '{}' is there twice", key.Scalar()));
      object[key.Scalar()] = convert(value, depth + 1);
    }
    return object;
  }
};

}  // namespace

Json parse_yaml(const std::string& text, const std::string& name) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    XF_CHECK(documents.size() == 1, UserError, "{}: expected one YAML document, got {}", name, documents.size());
    return Converter{name}.convert(documents.front());
  } catch (const YAML::Exception& error) {
    fail(name, error.mark, error.msg);
  }
}

}  // namespace xformer::readers
