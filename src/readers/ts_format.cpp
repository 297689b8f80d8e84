// The .ts format: "@keyword value" lines, then a case a line, "1,2,3:4,5,6:label", its values with @timeStamps true
// pairs "(2007-01-01 00:00:00,241.97)".
#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "readers/series_format.h"

namespace xformer::readers {
namespace {

bool parse_claim(std::string_view text, std::string_view keyword, std::string_view where) {
  const std::string word = canonical_name(take_word(text));
  XF_CHECK((word == "true" || word == "false") && text.empty(), DataError,
           "{}: expected true or false after @{}, found {}", where, keyword,
           xformer::quoted(text.empty() ? std::string_view(word) : text));
  return word == "true";
}

int64_t parse_count(std::string_view text, std::string_view keyword, std::string_view where) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  XF_CHECK(error == std::errc() && end == text.data() + text.size() && count >= 1, DataError,
           "{}: expected a whole number from 1 after @{}, found {}", where, keyword, xformer::quoted(text));
  return count;
}

class TsFormat : public SeriesFormat {
 public:
  void read_header(std::string_view keyword, std::string_view rest, std::string_view where) override {
    const std::string key = keyword == "dimension" ? "dimensions" : std::string(keyword);
    // A name may come again (UnitTest_TEST.ts has it twice); sktime, too, takes the last.
    XF_CHECK(key == "problemname" || std::find(seen_.begin(), seen_.end(), key) == seen_.end(), DataError,
             "{}: expected @{} once, found it again", where, key);
    seen_.push_back(key);
    if (key == "problemname") header_.name = rest;
    else if (key == "timestamps") header_.timestamps = parse_claim(rest, key, where);
    else if (key == "missing") header_.missing = parse_claim(rest, key, where);
    else if (key == "univariate") header_.univariate = parse_claim(rest, key, where);
    else if (key == "equallength") header_.equal_length = parse_claim(rest, key, where);
    else if (key == "dimensions") header_.dimensions = parse_count(rest, key, where);
    else if (key == "serieslength") header_.length = parse_count(rest, key, where);
    else if (key == "classlabel") read_labels(rest, where);
    else if (key == "targetlabel")
      XF_CHECK(!parse_claim(rest, key, where), DataError,
               "{}: expected class labels, found @targetLabel true: this is a set for regression", where);
    else refuse_near_miss(key, where);  // other keywords are notes of whoever made the file
  }

  [[nodiscard]] SeriesHeader header(std::string_view where) const override {
    XF_CHECK(!header_.class_labels.empty(), DataError,
             "{}: expected a line '@classLabel true LABEL...' before @data, found none", where);
    return header_;
  }

  void read_case(std::string_view line, std::string_view where, std::vector<std::vector<float>>& dimensions,
                 std::string& label) override {
    const size_t end = line.rfind(':');
    XF_CHECK(end != std::string_view::npos, DataError,
             "{}: expected dimensions and a label with ':' between them, found no ':' in {}", where,
             xformer::quoted(line));
    label = trim(line.substr(end + 1));
    std::string_view rest = line.substr(0, end);
    XF_CHECK(header_.timestamps || !trim(rest).starts_with('('), DataError,
             "{}: the header does not state @timeStamps true, the case has pairs: {}", where, xformer::quoted(line));
    size_t count = 0;
    for (bool more = true; more; ++count) {
      if (dimensions.size() == count) dimensions.emplace_back();
      if (header_.timestamps) {
        more = take_pairs(rest, where, count + 1, dimensions[count]);
        continue;
      }
      const size_t colon = rest.find(':');
      parse_series_values(rest.substr(0, colon), where, count + 1, dimensions[count]);
      more = colon != std::string_view::npos;
      if (more) rest.remove_prefix(colon + 1);
    }
    dimensions.resize(count);
  }

 private:
  void read_labels(std::string_view rest, std::string_view where) {
    require_utf8(rest, where);
    const std::string_view first = take_word(rest);
    XF_CHECK(parse_claim(first, "classLabel", where), DataError,
             "{}: expected class labels, found @classLabel false: this set has none", where);
    while (!rest.empty()) header_.class_labels.emplace_back(take_word(rest));
    XF_CHECK(!header_.class_labels.empty(), DataError, "{}: expected labels after '@classLabel true', found none",
             where);
  }

  static void refuse_near_miss(const std::string& keyword, std::string_view where) {
    static const std::vector<std::string> kKnown{"problemName", "timeStamps",  "missing",      "univariate",
                                                 "dimensions",  "equalLength", "seriesLength", "classLabel",
                                                 "targetLabel", "data"};
    const std::string near = keyword.size() < 40 ? nearest_name(keyword, kKnown) : std::string();
    XF_CHECK(near.empty(), DataError, "{}: unknown header line {}; did you mean '@{}'?", where,
             xformer::quoted("@" + keyword), near);
  }

  // One dimension of pairs off the front of `rest`; whether another follows. The time may hold colons and commas.
  static bool take_pairs(std::string_view& rest, std::string_view where, size_t dimension, std::vector<float>& values) {
    values.clear();
    while (true) {
      rest = trim(rest);
      const size_t close = rest.find(')');
      XF_CHECK(rest.starts_with('(') && close != std::string_view::npos, DataError,
               "{}: the header states @timeStamps true: expected (time,value) as value {} of dimension {}, found {}",
               where, values.size() + 1, dimension, xformer::quoted(rest));
      const std::string_view pair = rest.substr(1, close - 1);
      const size_t comma = pair.rfind(',');
      XF_CHECK(comma != std::string_view::npos && !trim(pair.substr(0, comma)).empty(), DataError,
               "{}: expected (time,value) as value {} of dimension {}, found {}", where, values.size() + 1, dimension,
               xformer::quoted(rest.substr(0, close + 1)));
      values.push_back(parse_series_value(pair.substr(comma + 1), where, dimension, values.size() + 1));
      rest = trim(rest.substr(close + 1));
      if (rest.empty()) return false;
      const char separator = rest.front();
      XF_CHECK(separator == ',' || separator == ':', DataError,
               "{}: expected ',' or ':' after value {} of dimension {}, found {}", where, values.size(), dimension,
               xformer::quoted(rest));
      rest.remove_prefix(1);
      if (separator == ':') return true;
    }
  }

  SeriesHeader header_;
  std::vector<std::string> seen_;
};

}  // namespace

std::unique_ptr<SeriesFormat> make_ts_format() { return std::make_unique<TsFormat>(); }

}  // namespace xformer::readers
