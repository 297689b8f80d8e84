// Delimiter-separated text, plain or gzip: rows of as many fields as the first row has.
//
// Quotes as in RFC 4180: "a, b" is one field and "" in it one quote; blanks around fields are dropped, those within
// quotes kept. A line break within quotes is refused, as are a ragged row and an empty line between rows (those at
// the end of the file are accepted), and a header that is no UTF-8. Errors are DataErrors with file and line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "readers/line_reader.h"

namespace xformer::readers {

struct CsvFormat {
  char delimiter = ',';
  bool header = false;                     // the first row names the columns
  std::vector<std::string> skip_prefixes;  // lines that begin so are passed over
};

class CsvReader {
 public:
  static constexpr size_t kLongestLine = 64'000'000;  // a field may hold a whole text or sequence

  CsvReader(const Path& path, CsvFormat format);
  // The next row's fields, valid until the following call; false after the last.
  [[nodiscard]] bool next(std::vector<std::string_view>& fields);
  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }  // empty without one
  [[nodiscard]] int64_t line_number() const { return lines_.line_number(); }
  [[nodiscard]] std::string where() const { return lines_.where(); }
  [[nodiscard]] uint64_t bytes_read() const { return lines_.bytes_read(); }

 private:
  bool next_line(std::string_view& line);
  void split_row(std::string_view line, std::vector<std::string_view>& fields);

  LineReader lines_;
  CsvFormat format_;
  std::vector<std::string> header_;
  std::string unescaped_;  // fields that held doubled quotes
  size_t columns_ = 0;
  int64_t first_line_ = 0;
};

// The number that the whole text is: "1", "-2.5e3", "+4"; nothing for other text, NaN, infinity or beyond a double.
[[nodiscard]] std::optional<double> parse_number(std::string_view text);

}  // namespace xformer::readers
