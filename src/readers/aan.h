// Document pairs of the ACL Anthology Network as the Long Range Arena distributes them:
// new_aan_pairs.{train,eval,test}.tsv.
//
// No header; five fields between tabs, without quoting: label, id 1, id 2, text 1, text 2. The label is a number's
// text ("0.0", "1.0"), 1 for a citation between the two. Errors are DataErrors with file, line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "readers/line_reader.h"

namespace xformer::readers::aan {

inline constexpr size_t kLongestRow = 32'000'000;  // two whole documents

struct Pair {
  int64_t label = 0;                     // 0 or 1
  std::string_view first_id, second_id;  // valid until the next row, like the texts
  std::string_view first, second;
};

class PairReader {
 public:
  explicit PairReader(const Path& path) : lines_(path, kLongestRow) {}
  // False after the last row. A file without rows, a row of other than five fields, a label that is not 0 or 1 and an
  // empty field are refused.
  [[nodiscard]] bool next(Pair& pair);
  [[nodiscard]] int64_t line_number() const { return lines_.line_number(); }
  [[nodiscard]] uint64_t bytes_read() const { return lines_.bytes_read(); }

 private:
  LineReader lines_;
};

}  // namespace xformer::readers::aan
