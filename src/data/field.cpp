#include "data/field.h"

#include <array>

#include "core/names.h"

namespace xformer::data {
namespace {

struct ElementFacts {
  const char* name;
  int64_t bytes;
};
constexpr std::array<ElementFacts, 5> kElements{{{"u8", 1}, {"u16", 2}, {"i32", 4}, {"f32", 4}, {"bool", 1}}};
constexpr std::array<const char*, 3> kAxes{"example", "token", "token x k"};

const ElementFacts& facts_of(Element element) { return kElements.at(static_cast<size_t>(element)); }

}  // namespace

int64_t element_bytes(Element element) { return facts_of(element).bytes; }

std::string element_name(Element element) { return facts_of(element).name; }

Element parse_element(const std::string& name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kElements.size(); ++i) {
    if (name == kElements[i].name) return static_cast<Element>(i);
    names.emplace_back(kElements[i].name);
  }
  throw DataError(unknown_name_message("element", name, names));
}

Element narrowest(int64_t range) {
  return range <= 1 << 8 ? Element::kU8 : range <= 1 << 16 ? Element::kU16 : Element::kI32;
}

int64_t index_of(const Fields& fields, std::string_view name) {
  for (size_t i = 0; i < fields.size(); ++i)
    if (fields[i].name == name) return static_cast<int64_t>(i);
  return -1;
}

Json field_to_json(const Field& field) {
  return {{"name", field.name},   {"element", element_name(field.element)},
          {"k", field.k},         {"axes", kAxes.at(static_cast<size_t>(field.axes))},
          {"range", field.range}, {"stored", field.stored},
          {"fill", field.fill}};
}

Field field_from_json(const Json& json) {
  Field field;
  json.at("name").get_to(field.name);
  field.element = parse_element(json.at("element").get<std::string>());
  const auto axes = json.at("axes").get<std::string>();
  size_t at = 0;
  while (at < kAxes.size() && axes != kAxes[at]) ++at;
  XF_CHECK(at < kAxes.size(), DataError, "field {}: no axes are named '{}'", field.name, axes);
  field.axes = static_cast<Axes>(at);
  json.at("k").get_to(field.k);
  json.at("range").get_to(field.range);
  json.at("stored").get_to(field.stored);
  json.at("fill").get_to(field.fill);
  return field;
}

}  // namespace xformer::data
