// Schemas in words, as people write them on a command line: "target=price categorical=city,zip".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace xformer::data {

struct SchemaLanguage {
  std::string noun;     // "table schema", in front of messages
  std::string example;  // of a whole schema
  std::vector<std::string> keys;
};

// Blanks separate settings, commas the items of one; an item with blanks or commas stands in double quotes:
// target="sale price". UserErrors say what was expected and the nearest name.
class SchemaWords {
 public:
  SchemaWords(std::string_view text, const SchemaLanguage& language);
  [[nodiscard]] bool has(const std::string& key) const { return settings_.contains(key); }
  [[nodiscard]] std::vector<std::string> items(const std::string& key) const;  // none where it is not set
  // The one item, or `other` where it is not set.
  [[nodiscard]] std::string item(const std::string& key, const std::string& other) const;
  // The one item, which must be set, as a place in `choices`.
  [[nodiscard]] size_t choice(const std::string& key, const std::vector<std::string>& choices) const;
  // Of delimiter=comma|tab|semicolon, a comma where it is not set.
  [[nodiscard]] char delimiter() const;

 private:
  std::string noun_;
  std::map<std::string, std::vector<std::string>> settings_;
};

}  // namespace xformer::data
