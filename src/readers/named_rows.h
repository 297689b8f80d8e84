// Rows of named fields, from delimiter-separated text with a header or from JSON lines, each plain or gzip; and the
// dates in them.
//
// JSON lines (a name that ends in .jsonl or .jsonl.gz): an object a line, whose values are texts, numbers, true, false
// or null, which is an empty field. The first line's keys are the columns: a later line may lack some, which are empty
// fields, and may have no other. Errors are DataErrors with file and line.
#pragma once

#include <memory>
#include <optional>

#include "readers/csv.h"

namespace xformer::readers {

class NamedRowReader {
 public:
  NamedRowReader(const Path& path, char delimiter);
  ~NamedRowReader();
  NamedRowReader(const NamedRowReader&) = delete;
  NamedRowReader& operator=(const NamedRowReader&) = delete;

  [[nodiscard]] const std::vector<std::string>& columns() const;
  // The next row's fields, one a column, valid until the following call; false after the last.
  [[nodiscard]] bool next(std::vector<std::string_view>& fields);
  [[nodiscard]] std::string where() const;  // "folder/events.csv:17"
  [[nodiscard]] uint64_t bytes_read() const;

 private:
  class JsonLines;
  std::unique_ptr<CsvReader> csv_;  // one of the two
  std::unique_ptr<JsonLines> json_;
};

// Whether a file of this name holds JSON lines.
[[nodiscard]] bool is_json_lines(const Path& path);

enum class DateFormat {
  kIso,     // 1993-07-05, and behind a blank or T a time: 13:45, 13:45:09, 13:45:09.5, with or without Z
  kShort,   // 930705: of 1900 to 1999, as banks wrote; a time as above
  kDays,    // a number of days from any day on
  kSeconds  // a number of seconds, of 1970-01-01 00:00 or any other moment
};
// Seconds, of days of 86,400 each; whole ones. Nothing for what is no date of this format, or beyond 10,000 years.
[[nodiscard]] std::optional<int64_t> parse_date(std::string_view text, DateFormat format);
// How a person writes such a moment: 1993-07-05, 1993-07-05 13:45:00, day 730, second 1711929600.
[[nodiscard]] std::string date_text(int64_t seconds, DateFormat format);

}  // namespace xformer::readers
