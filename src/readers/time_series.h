// Labelled time series in the two formats of the UEA and UCR archives: .ts, and ARFF with a relational attribute or
// with a numeric attribute for every time step. Plain or gzip; which format it is, the first header line tells.
//
// Labels are numbered in the header's order. What a header states is a claim: a case that contradicts it is a DataError
// with file, line and field, as are a file without @data or cases, no class labels or one, and an infinite value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "readers/line_reader.h"

namespace xformer::readers {

struct SeriesHeader {
  std::string name;
  std::vector<std::string> class_labels;
  bool timestamps = false;  // values come as (time,value); the time is not kept
  // What the header states, if it does.
  std::optional<int64_t> dimensions;
  std::optional<int64_t> length;  // of every series, or of the longest where equal_length is false
  std::optional<bool> equal_length, missing, univariate;
};

struct SeriesCase {
  std::vector<std::vector<float>> dimensions;  // NaN: a missing value ('?' or NaN)
  int64_t label = 0;                           // place in class_labels
};

class SeriesFormat;

class SeriesReader {
 public:
  static constexpr size_t kLongestLine = 64'000'000;

  explicit SeriesReader(const Path& path);
  ~SeriesReader();
  [[nodiscard]] const SeriesHeader& header() const { return header_; }
  // False after the last case. The case's vectors keep their memory.
  [[nodiscard]] bool next(SeriesCase& series);
  [[nodiscard]] std::string where() const { return lines_.where(); }
  [[nodiscard]] uint64_t bytes_read() const { return lines_.bytes_read(); }

 private:
  bool next_line(std::string_view& line);
  void read_header();
  void check(const SeriesCase& series);

  LineReader lines_;
  std::unique_ptr<SeriesFormat> format_;
  SeriesHeader header_;
  size_t dimensions_ = 0;     // of the first case
  size_t common_length_ = 0;  // of its first dimension
};

}  // namespace xformer::readers
