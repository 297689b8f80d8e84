#include "readers/time_series.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "readers/series_format.h"

namespace xformer::readers {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& letter : result)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return result;
}

int64_t label_id(const std::string& label, const std::vector<std::string>& labels, std::string_view where) {
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (found != labels.end()) return found - labels.begin();
  const std::string near = label.size() < 40 ? nearest_name(label, labels) : std::string();
  throw DataError(fmt::format("{}: expected a label of the header ({}), found {}{}", where, first_names(labels),
                              xformer::quoted(label), near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

}  // namespace

std::string_view take_word(std::string_view& text) {
  text = trim(text);
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text = trim(text.substr(end));
  return word;
}

float parse_series_value(std::string_view text, std::string_view where, size_t dimension, size_t place) {
  const std::string_view value = trim(text);
  if (value == "?" || (value.size() == 3 && lower(value) == "nan")) return std::numeric_limits<float>::quiet_NaN();
  const bool plus = value.size() > 1 && value[0] == '+' && value[1] != '-';
  const std::string_view digits = plus ? value.substr(1) : value;
  float number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool complete = !digits.empty() && end == digits.data() + digits.size();
  // Out of range is said of the smallest numbers too, which are as good as 0.
  if (complete && error == std::errc::result_out_of_range) number = std::strtof(std::string(digits).c_str(), nullptr);
  XF_CHECK(complete && error != std::errc::invalid_argument && !std::isnan(number), DataError,
           "{}: expected a number or '?' as value {} of dimension {}, found {}", where, place, dimension,
           xformer::quoted(value));
  XF_CHECK(std::isfinite(number), DataError, "{}: expected a finite number as value {} of dimension {}, found {}",
           where, place, dimension, xformer::quoted(value));
  return number;
}

void parse_series_values(std::string_view text, std::string_view where, size_t dimension, std::vector<float>& values) {
  values.clear();
  XF_CHECK(!trim(text).empty(), DataError, "{}: expected values in dimension {}, found none", where, dimension);
  while (true) {
    const size_t end = text.find(',');
    values.push_back(parse_series_value(text.substr(0, end), where, dimension, values.size() + 1));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

SeriesReader::SeriesReader(const Path& path) : lines_(path, kLongestLine) { read_header(); }

SeriesReader::~SeriesReader() = default;

// The next line that is neither blank nor a comment.
bool SeriesReader::next_line(std::string_view& line) {
  while (lines_.next(line)) {
    line = trim(line);
    if (!line.empty() && line.front() != '#' && line.front() != '%') return true;
  }
  return false;
}

void SeriesReader::read_header() {
  std::string_view line;
  while (next_line(line)) {
    XF_CHECK(line.front() == '@', DataError,
             "{}: expected a header line (@...) or @data in front of the cases, found {}", where(),
             xformer::quoted(line));
    std::string_view rest = line.substr(1);
    const std::string keyword = lower(take_word(rest));
    if (!format_) format_ = keyword == "relation" || keyword == "attribute" ? make_arff_format() : make_ts_format();
    if (keyword != "data") {
      format_->read_header(keyword, rest, where());
      continue;
    }
    header_ = format_->header(where());
    const auto& labels = header_.class_labels;
    XF_CHECK(labels.size() >= 2, DataError, "{}: expected at least two class labels in the header, found {}", where(),
             labels.empty() ? "none" : "only " + xformer::quoted(labels.front()));
    std::vector<std::string> sorted = labels;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    XF_CHECK(twice == sorted.end(), DataError, "{}: expected every class label once in the header, found {} twice",
             where(), xformer::quoted(*twice));
    return;
  }
  throw DataError(fmt::format("{}: expected @data and cases, found the end of the file", lines_.path().string()));
}

bool SeriesReader::next(SeriesCase& series) {
  std::string_view line;
  if (!next_line(line)) {
    XF_CHECK(dimensions_ > 0, DataError, "{}: expected at least one case after @data, found none",
             lines_.path().string());
    return false;
  }
  std::string label;
  const std::string place = where();
  format_->read_case(line, place, series.dimensions, label);
  series.label = label_id(label, header_.class_labels, place);
  check(series);
  return true;
}

// What the header claims, and what the first case stands for.
void SeriesReader::check(const SeriesCase& series) {
  const size_t dimensions = series.dimensions.size();
  if (dimensions_ == 0) {
    XF_CHECK(!header_.dimensions || *header_.dimensions == static_cast<int64_t>(dimensions), DataError,
             "{}: the header states {} dimensions, the case has {}", where(), *header_.dimensions, dimensions);
    XF_CHECK(!header_.univariate || *header_.univariate == (dimensions == 1), DataError,
             "{}: the header states @univariate {}, the case has {} dimension{}", where(), *header_.univariate,
             dimensions, dimensions == 1 ? "" : "s");
    dimensions_ = dimensions;
    common_length_ = series.dimensions.front().size();
  }
  XF_CHECK(dimensions == dimensions_, DataError, "{}: expected {} dimensions as in the first case, found {}", where(),
           dimensions_, dimensions);
  const bool equal = header_.equal_length.value_or(false);
  for (size_t d = 0; d < dimensions; ++d) {
    const std::vector<float>& values = series.dimensions[d];
    if (header_.length) {
      const auto length = static_cast<int64_t>(values.size());
      const bool at_most = header_.equal_length.has_value() && !equal;
      XF_CHECK(at_most ? length <= *header_.length : length == *header_.length, DataError,
               "{}: the header states {} of {}, dimension {} has {} values", where(),
               at_most ? "a longest series" : "series", *header_.length, d + 1, length);
    }
    XF_CHECK(!equal || values.size() == common_length_, DataError,
             "{}: the header states @equalLength true, dimension {} has {} values and the first series {}", where(),
             d + 1, values.size(), common_length_);
    if (header_.missing.value_or(true)) continue;
    const auto gap = std::find_if(values.begin(), values.end(), [](float value) { return std::isnan(value); });
    XF_CHECK(gap == values.end(), DataError,
             "{}: the header states @missing false, value {} of dimension {} is missing", where(),
             gap - values.begin() + 1, d + 1);
  }
}

}  // namespace xformer::readers
