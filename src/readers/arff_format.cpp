// ARFF as the archives write it. Several dimensions: a relational attribute whose numeric attributes are the time steps
// and a nominal one for the class; a case is "'1,2,3\n4,5,6',label" with backslash and n between the dimensions. One
// dimension: numeric attributes, the class, and a case "1,2,3,label".
//
// All series of such a file have the stated length; shorter ones are padded with '?' in all dimensions, so that a tail
// without any value is no part of a series.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "readers/series_format.h"

namespace xformer::readers {
namespace {

bool is_quote(char letter) { return letter == '\'' || letter == '"'; }

// A word, or what stands between quotes with its escapes as they are, off the front of `text`; without quotes it goes
// up to one of `ends`.
std::string_view take_raw(std::string_view& text, std::string_view ends, std::string_view where) {
  text = trim(text);
  std::string_view word;
  if (!text.empty() && is_quote(text.front())) {
    size_t close = 1;
    while (close < text.size() && text[close] != text.front()) close += text[close] == '\\' ? 2 : 1;
    XF_CHECK(close < text.size(), DataError, "{}: expected the end of the quoted text {}, found the end of the line",
             where, xformer::quoted(text));
    word = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
  } else {
    word = trim(text.substr(0, text.find_first_of(ends)));
    text.remove_prefix(std::min(text.find_first_of(ends), text.size()));
  }
  text = trim(text);
  return word;
}

std::string unescaped(std::string_view raw) {
  std::string result;
  for (size_t i = 0; i < raw.size(); ++i) result += raw[i] == '\\' && i + 1 < raw.size() ? raw[++i] : raw[i];
  return result;
}

class ArffFormat : public SeriesFormat {
 public:
  void read_header(std::string_view keyword, std::string_view rest, std::string_view where) override {
    if (keyword == "relation") {
      name_ = unescaped(take_raw(rest, "", where));
    } else if (keyword == "end") {
      XF_CHECK(inside_, DataError, "{}: expected @attribute or @data, found @end without a relational attribute",
               where);
      inside_ = false;
    } else {
      XF_CHECK(keyword == "attribute", DataError, "{}: expected @relation, @attribute, @end or @data, found {}", where,
               xformer::quoted("@" + std::string(keyword)));
      read_attribute(rest, where);
    }
  }

  [[nodiscard]] SeriesHeader header(std::string_view where) const override {
    XF_CHECK(!inside_, DataError, "{}: expected @end of the relational attribute before @data, found none", where);
    XF_CHECK(has_labels_, DataError,
             "{}: expected a class attribute '@attribute NAME {{a,b,...}}' before @data, found none", where);
    XF_CHECK(steps_ > 0, DataError, "{}: expected numeric attributes, one a time step, before @data, found none",
             where);
    SeriesHeader header;
    header.name = name_;
    header.class_labels = labels_;
    header.length = steps_;
    header.equal_length = false;  // the length is that of the longest
    if (!relational_) header.dimensions = 1;
    return header;
  }

  void read_case(std::string_view line, std::string_view where, std::vector<std::vector<float>>& dimensions,
                 std::string& label) override {
    size_t count = 0;
    const auto add = [&](std::string_view values) {
      if (dimensions.size() == count) dimensions.emplace_back();
      parse_series_values(values, where, count + 1, dimensions[count]);
      XF_CHECK(static_cast<int64_t>(dimensions[count].size()) == steps_, DataError,
               "{}: the header states {} numeric attributes (time steps), dimension {} has {} values", where, steps_,
               count + 1, dimensions[count].size());
      ++count;
    };
    if (relational_) {
      XF_CHECK(is_quote(line.front()), DataError, "{}: expected the dimensions in quotes and a label, found {}", where,
               xformer::quoted(line));
      std::string_view cells = take_raw(line, ",", where);
      for (size_t end = cells.find("\\n"); end != std::string_view::npos; end = cells.find("\\n")) {
        add(cells.substr(0, end));
        cells.remove_prefix(end + 2);
      }
      add(cells);
    } else {
      size_t end = 0;
      for (int64_t step = 0; step < steps_ && end != std::string_view::npos; ++step)
        end = line.find(',', step == 0 ? 0 : end + 1);
      XF_CHECK(end != std::string_view::npos, DataError, "{}: expected {} values and a label, found {} fields", where,
               steps_, std::count(line.begin(), line.end(), ',') + 1);
      add(line.substr(0, end));
      line.remove_prefix(end);
    }
    dimensions.resize(count);
    XF_CHECK(line.starts_with(','), DataError, "{}: expected ',' and a label after the values, found {}", where,
             xformer::quoted(line));
    line.remove_prefix(1);
    label = unescaped(take_raw(line, ",", where));
    XF_CHECK(line.empty(), DataError, "{}: expected the end of the line after the label {}, found {}", where,
             xformer::quoted(label), xformer::quoted(line));
    cut_padding(dimensions);
  }

 private:
  void read_attribute(std::string_view rest, std::string_view where) {
    const std::string name = unescaped(take_raw(rest, " \t{", where));
    XF_CHECK(!has_labels_, DataError, "{}: expected the class as the last attribute, found {} after it", where,
             xformer::quoted(name));
    const std::string type = canonical_name(rest);
    if (type == "relational") {
      XF_CHECK(!relational_ && steps_ == 0, DataError,
               "{}: expected one relational attribute in front of all others, found {}", where, xformer::quoted(name));
      relational_ = inside_ = true;
    } else if (type == "numeric" || type == "real" || type == "integer") {
      XF_CHECK(
          inside_ || !relational_, DataError,
          "{}: expected the class, '@attribute NAME {{a,b,...}}', after the relational attribute, found the numeric {}",
          where, xformer::quoted(name));
      ++steps_;
    } else {
      XF_CHECK(rest.starts_with('{') && !inside_, DataError, "{}: expected the type {}, found {} for {}", where,
               inside_ ? "numeric" : "relational, numeric or {a,b,...}", xformer::quoted(rest), xformer::quoted(name));
      rest.remove_prefix(1);
      read_labels(rest, where);
    }
  }

  // "a, 'b c'}".
  void read_labels(std::string_view rest, std::string_view where) {
    require_utf8(rest, where);
    has_labels_ = true;
    while (true) {
      labels_.push_back(unescaped(take_raw(rest, ",}", where)));
      XF_CHECK(!rest.empty() && !labels_.back().empty(), DataError,
               "{}: expected class labels as {{a,b,...}}, found {} after {} of them", where,
               rest.empty() ? "the end of the line" : xformer::quoted(rest), labels_.size() - 1);
      const bool last = rest.front() == '}';
      XF_CHECK(last ? rest.size() == 1 : rest.front() == ',', DataError,
               "{}: expected ',' or '}}' and the end of the line after the class label {}, found {}", where,
               xformer::quoted(labels_.back()), xformer::quoted(rest));
      if (last) return;
      rest.remove_prefix(1);
    }
  }

  static void cut_padding(std::vector<std::vector<float>>& dimensions) {
    const auto missing_at = [&](size_t step) {
      return std::all_of(dimensions.begin(), dimensions.end(),
                         [step](const std::vector<float>& values) { return std::isnan(values[step]); });
    };
    size_t length = dimensions.front().size();
    while (length > 0 && missing_at(length - 1)) --length;
    if (length == 0) return;  // no value at all: nothing tells the length
    for (std::vector<float>& values : dimensions) values.resize(length);
  }

  std::string name_;
  std::vector<std::string> labels_;
  bool has_labels_ = false;
  bool relational_ = false, inside_ = false;  // inside the relational attribute
  int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<SeriesFormat> make_arff_format() { return std::make_unique<ArffFormat>(); }

}  // namespace xformer::readers
