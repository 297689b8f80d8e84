#include "data/tables/schema_words.h"

#include <algorithm>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::data {

SchemaWords::SchemaWords(std::string_view text, const SchemaLanguage& language) : noun_(language.noun) {
  size_t at = 0;
  while (true) {
    at = std::min(text.find_first_not_of(" \t", at), text.size());
    if (at == text.size()) return;
    const size_t equals = text.find_first_of("= \t", at);
    XF_CHECK(equals != std::string_view::npos && text[equals] == '=', UserError,
             "{}: expected KEY=VALUE as in '{}', found {}", noun_, language.example,
             quoted(text.substr(at, equals - at)));
    const std::string key = canonical_name(text.substr(at, equals - at));
    XF_CHECK(std::find(language.keys.begin(), language.keys.end(), key) != language.keys.end(), UserError, "{}",
             unknown_name_message("setting of the " + noun_, key, language.keys));
    std::vector<std::string> items(1);
    bool inside = false;
    for (at = equals + 1; at < text.size() && (inside || (text[at] != ' ' && text[at] != '\t')); ++at) {
      if (text[at] == '"') inside = !inside;
      else if (text[at] == ',' && !inside) items.emplace_back();
      else items.back() += text[at];
    }
    XF_CHECK(!inside, UserError, "{}: the quote in the value of {} is not closed", noun_, key);
    for (const std::string& item : items)
      XF_CHECK(!item.empty(), UserError, "{}: expected {}=VALUE, found an empty value", noun_, key);
    XF_CHECK(settings_.emplace(key, std::move(items)).second, UserError, "{}: {} is set twice", noun_, key);
  }
}

std::vector<std::string> SchemaWords::items(const std::string& key) const {
  const auto found = settings_.find(key);
  return found == settings_.end() ? std::vector<std::string>() : found->second;
}

std::string SchemaWords::item(const std::string& key, const std::string& other) const {
  const std::vector<std::string> all = items(key);
  XF_CHECK(all.size() < 2, UserError, "{}: expected one value of {}, found {}", noun_, key, fmt::join(all, ", "));
  return all.empty() ? other : all[0];
}

size_t SchemaWords::choice(const std::string& key, const std::vector<std::string>& choices) const {
  XF_CHECK(has(key), UserError, "{}: expected {}={}, found no {}", noun_, key, fmt::join(choices, " or "), key);
  const std::string value = fmt::format("{}", fmt::join(items(key), ","));
  const auto place = std::find(choices.begin(), choices.end(), canonical_name(value));
  XF_CHECK(place != choices.end(), UserError, "{}: {}", noun_, unknown_name_message("value of " + key, value, choices));
  return static_cast<size_t>(place - choices.begin());
}

char SchemaWords::delimiter() const {
  return has("delimiter") ? ",\t;"[choice("delimiter", {"comma", "tab", "semicolon"})] : ',';
}

}  // namespace xformer::data
