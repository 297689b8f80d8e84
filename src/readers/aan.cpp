#include "readers/aan.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"
#include "core/text.h"

namespace xformer::readers::aan {
namespace {

constexpr std::array<std::string_view, 5> kFields{"label", "id 1", "id 2", "text 1", "text 2"};

}  // namespace

bool PairReader::next(Pair& pair) {
  std::string_view line;
  if (!lines_.next(line)) {
    XF_CHECK(lines_.line_number() > 0, DataError, "{} is empty: expected rows {}", lines_.path().string(),
             fmt::join(kFields, "<TAB>"));
    return false;
  }
  std::array<std::string_view, kFields.size()> fields;
  size_t count = 0;
  for (size_t begin = 0; begin <= line.size(); ++count) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    if (count < fields.size()) fields[count] = line.substr(begin, end - begin);
    begin = end + 1;
  }
  XF_CHECK(count == fields.size(), DataError, "{}: expected {} fields, {}, found {} in {}", lines_.where(),
           fields.size(), fmt::join(kFields, "<TAB>"), count, quoted(line));
  for (size_t i = 0; i < fields.size(); ++i)
    XF_CHECK(!fields[i].empty(), DataError, "{}, column {}: expected {}, found nothing", lines_.where(), i + 1,
             kFields[i]);
  double label = -1;
  const auto [end, problem] = std::from_chars(fields[0].data(), fields[0].data() + fields[0].size(), label);
  const bool whole = problem == std::errc() && end == fields[0].data() + fields[0].size();
  XF_CHECK(whole && (label == 0 || label == 1), DataError, "{}, column 1: expected the label 0 or 1, found {}",
           lines_.where(), quoted(fields[0]));
  pair = {label == 1 ? 1 : 0, fields[1], fields[2], fields[3], fields[4]};
  return true;
}

}  // namespace xformer::readers::aan
