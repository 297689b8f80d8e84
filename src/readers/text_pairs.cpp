#include "readers/text_pairs.h"

#include <array>

#include "core/error.h"
#include "core/json.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::readers {

namespace {

Json parse_object(std::string_view line, const std::string& where) {
  Json json;
  try {
    json = Json::parse(line);
  } catch (const Json::parse_error& error) {
    const std::string what = error.what();
    const bool utf8 = what.find("UTF-8") != what.npos;
    throw DataError(fmt::format("{}: expected {}, found {} (byte {} of the line)", where,
                                utf8 ? "text in UTF-8" : "a JSON object", xformer::quoted(line), error.byte));
  } catch (const Json::exception& error) {
    throw DataError(
        fmt::format("{}: expected a JSON object, found {}: {}", where, xformer::quoted(line), error.what()));
  }
  XF_CHECK(json.is_object(), DataError, "{}: expected a JSON object, found {}", where, json.type_name());
  return json;
}

std::string fields_there(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(xformer::quoted(name));
  return names.empty() ? "the object is empty" : fmt::format("found {}", fmt::join(names, ", "));
}

std::string text_of(const Json& value, const std::string& name, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  XF_CHECK(value.is_array(), DataError, "{}: expected \"{}\" to be a text or a list of texts, found {}", where, name,
           value.type_name());
  std::string text;
  for (const Json& one : value) {
    XF_CHECK(one.is_string(), DataError, "{}: expected \"{}\" to be a list of texts, found {} in it", where, name,
             one.type_name());
    if (&one != &value.front()) text += '\n';
    text += one.get<std::string>();
  }
  return text;
}

const Json& field_of(const Json& object, const std::string& name, const std::string& where) {
  const auto found = object.find(name);
  XF_CHECK(found != object.end(), DataError, "{}: the field \"{}\" is missing; {}", where, name, fields_there(object));
  return *found;
}

// Without the marks of sentences.
std::string unmarked(std::string text) {
  for (const std::string_view mark : {"<S>", "</S>"})
    for (size_t at = 0; (at = text.find(mark, at)) != text.npos;) text.erase(at, mark.size());
  std::string result;
  for (const std::string_view sentence : split(text, '\n')) {
    if (!result.empty()) result += '\n';
    result += trim(sentence);
  }
  return result;
}

}  // namespace

SummaryLine parse_summary_line(std::string_view line, const std::string& where) {
  static constexpr std::array<std::array<const char*, 2>, 3> kNames{
      {{"article", "abstract"}, {"article_text", "abstract_text"}, {"description", "abstract"}}};
  const Json object = parse_object(line, where);
  for (const auto& [article, summary] : kNames) {
    if (!object.contains(article)) continue;
    const std::string abstract = text_of(field_of(object, summary, where), summary, where);
    return {text_of(object[article], article, where),
            std::string_view(summary) == "abstract_text" ? unmarked(abstract) : abstract};
  }
  throw DataError(
      fmt::format("{}: expected the fields \"article\" and \"abstract\", \"article_text\" and \"abstract_text\", or "
                  "\"description\" and \"abstract\"; {}",
                  where, fields_there(object)));
}

QuestionLine parse_question_line(std::string_view line, const std::string& where) {
  const Json object = parse_object(line, where);
  QuestionLine result;
  result.question = text_of(field_of(object, "question", where), "question", where);
  result.context = text_of(field_of(object, "context", where), "context", where);
  const Json* answers = &field_of(object, "answers", where);
  if (answers->is_object()) answers = &field_of(*answers, "text", where + ", \"answers\"");
  if (answers->is_string()) {
    result.answers.push_back(answers->get<std::string>());
    return result;
  }
  XF_CHECK(answers->is_array(), DataError,
           "{}: expected \"answers\" to be a text, a list of texts or an object with such a list under \"text\", found "
           "{}",
           where, answers->type_name());
  for (const Json& answer : *answers) {
    const Json& text = answer.is_object() ? field_of(answer, "text", where + ", \"answers\"") : answer;
    XF_CHECK(text.is_string(), DataError, "{}: expected an answer to be a text, found {}", where, text.type_name());
    result.answers.push_back(text.get<std::string>());
  }
  return result;
}

}  // namespace xformer::readers
