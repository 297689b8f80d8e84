#include "readers/csv.h"

#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace xformer::readers {
CsvReader::CsvReader(const Path& path, CsvFormat format) : lines_(path, kLongestLine), format_(std::move(format)) {
  if (!format_.header) return;
  std::vector<std::string_view> fields;
  XF_CHECK(next(fields), DataError, "{} is empty: expected a header and rows", path.string());
  for (const std::string_view name : fields) require_utf8(name, where());  // records have the names of columns
  header_.assign(fields.begin(), fields.end());
}

bool CsvReader::next_line(std::string_view& line) {
  const auto skipped = [&] {
    for (const std::string& prefix : format_.skip_prefixes)
      if (line.starts_with(prefix)) return true;
    return false;
  };
  do {
    if (!lines_.next(line)) return false;
  } while (skipped());
  return true;
}

bool CsvReader::next(std::vector<std::string_view>& fields) {
  const auto empty = [](std::string_view line) { return line.find_first_not_of(' ') == std::string_view::npos; };
  std::string_view line;
  if (!next_line(line)) return false;
  if (empty(line)) {
    const std::string where = lines_.where();
    while (next_line(line))
      XF_CHECK(empty(line), DataError, "{}: an empty line with more rows after it; expected a row", where);
    return false;
  }
  split_row(line, fields);
  if (columns_ == 0) {
    columns_ = fields.size();
    first_line_ = lines_.line_number();
  }
  XF_CHECK(fields.size() == columns_, DataError, "{}: expected {} fields as in line {}, found {} in {}", where(),
           columns_, first_line_, fields.size(), quoted(line));
  return true;
}

void CsvReader::split_row(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  unescaped_.clear();
  unescaped_.reserve(line.size());  // views into it stay valid
  size_t begin = 0;
  while (true) {
    while (begin < line.size() && (line[begin] == ' ' || line[begin] == '\t') && line[begin] != format_.delimiter)
      ++begin;
    size_t end = 0;
    if (begin < line.size() && line[begin] == '"') {
      const size_t first = begin + 1, start = unescaped_.size();
      size_t close = first;
      bool doubled = false;
      while (true) {
        close = line.find('"', close);
        XF_CHECK(close != std::string_view::npos, DataError,
                 "{}: the quote at column {} is not closed on this line; line breaks inside quotes are not supported",
                 where(), begin + 1);
        if (close + 1 == line.size() || line[close + 1] != '"') break;
        doubled = true;
        close += 2;
      }
      std::string_view field = line.substr(first, close - first);
      if (doubled) {
        for (size_t i = 0; i < field.size(); ++i) {
          unescaped_ += field[i];
          if (field[i] == '"') ++i;
        }
        field = std::string_view(unescaped_).substr(start);
      }
      fields.push_back(field);
      end = std::min(line.find(format_.delimiter, close + 1), line.size());
      XF_CHECK(trim(line.substr(close + 1, end - close - 1)).empty(), DataError,
               "{}: expected the next field after the quote at column {}, found {}", where(), close + 1,
               quoted(line.substr(close + 1, end - close - 1)));
    } else {
      end = std::min(line.find(format_.delimiter, begin), line.size());
      const std::string_view field = trim(line.substr(begin, end - begin));
      const size_t quote = field.find('"');
      XF_CHECK(quote == std::string_view::npos, DataError,
               "{}: a quote inside the field {}, which does not begin with one; expected \"...\" around all of it",
               where(), quoted(field));
      fields.push_back(field);
    }
    if (end == line.size()) return;
    begin = end + 1;
  }
}

std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

}  // namespace xformer::readers
