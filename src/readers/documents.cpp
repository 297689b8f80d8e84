#include "readers/documents.h"

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"

namespace xformer::readers {
namespace {

Path ending_of(const Path& path) { return (path.extension() == ".gz" ? path.stem() : path).extension(); }

bool is_json(const Path& path) { return ending_of(path) == ".json" || ending_of(path) == ".jsonl"; }

}  // namespace

DocumentReader::DocumentReader(const Path& path, DocumentFormat format, size_t longest)
    : lines_(path, is_json(path) ? 2 * longest + 4096 : longest),  // an object has more than its text
      format_(std::move(format)),
      longest_(longest),
      json_(is_json(path)) {}

bool DocumentReader::next(std::string& text) {
  do {
    if (!(json_ ? next_object(text) : next_lines(text))) return false;
    const std::string_view trimmed = trim(text);
    if (trimmed.size() < text.size()) text = std::string(trimmed);
  } while (text.empty());
  return true;
}

bool DocumentReader::next_object(std::string& text) {
  for (std::string_view line; lines_.next(line);) {
    if (trim(line).empty()) continue;
    require_utf8(line, where());
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    XF_CHECK(object.is_object(), DataError, "{}: expected a JSON object, found {}", where(), xformer::quoted(line));
    const auto value = object.find(format_.text_key);
    XF_CHECK(value != object.end() && value->is_string(), DataError, "{}: expected a text under {}, found {}", where(),
             xformer::quoted(format_.text_key), value == object.end() ? "no such key" : value->type_name());
    text = value->get<std::string>();
    XF_CHECK(text.size() <= longest_, DataError, "{}: a document has {} bytes; expected at most {}", where(),
             format_count(text.size()), format_count(longest_));
    return true;
  }
  return false;
}

bool DocumentReader::next_lines(std::string& text) {
  text = pending_ ? kArticleMark : "";
  bool found = pending_;
  pending_ = false;
  for (std::string_view line; lines_.next(line);) {
    require_utf8(line, where());
    const bool blank = trim(line).empty();
    if (format_.end == DocumentEnd::kArticle && trim(line) == kArticleMark) {
      pending_ = true;
      if (found) return true;
      text = kArticleMark;
      found = true, pending_ = false;
      continue;
    }
    if (blank && !found) continue;  // in front of the first line
    if (blank && format_.end == DocumentEnd::kBlankLine) return true;
    XF_CHECK(text.size() + line.size() < longest_, DataError, "{}: a document has more than {} bytes; {}", where(),
             format_count(longest_), "data.documents says what ends one");
    if (found) text += '\n';
    text += line;
    found = true;
    if (format_.end == DocumentEnd::kLine) return true;
  }
  return found;
}

bool is_document_file(const Path& path) { return is_json(path) || ending_of(path) == ".txt"; }

}  // namespace xformer::readers
