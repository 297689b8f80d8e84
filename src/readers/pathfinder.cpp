#include "readers/pathfinder.h"

#include <array>
#include <charconv>

#include "core/error.h"
#include "core/text.h"
#include "readers/line_reader.h"

namespace xformer::readers::pathfinder {
namespace {

constexpr std::array<const char*, 11> kFields{"folder",
                                              "file",
                                              "index",
                                              "label",
                                              "continuity",
                                              "contour length",
                                              "distractor length",
                                              "paddle length",
                                              "paddle thickness",
                                              "margin",
                                              "number of contrasts"};

// The parts between single blanks.
std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    parts.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

// A plain name in a folder below: nothing absolute, no "..", nothing that a file system reads otherwise.
bool leads_out(std::string_view folder, std::string_view file) {
  const Path path = Path(folder) / file;
  if (path.is_absolute() || folder.starts_with('/') || file.find('/') != file.npos) return true;
  for (const Path& part : path)
    if (part == "..") return true;
  return false;
}

}  // namespace

std::vector<Row> read_metadata(const Path& path) {
  std::vector<Row> rows;
  LineReader lines(path);
  for (std::string_view line; lines.next(line);) {
    while (line.ends_with(' ')) line.remove_suffix(1);
    const std::vector<std::string_view> fields = split(line);
    XF_CHECK(fields.size() == kFields.size(), DataError, "{}: expected {} fields between blanks, {}, found {} in {}",
             lines.where(), kFields.size(), fmt::join(kFields, ", "), fields.size(), quoted(line));
    for (size_t i = 2; i < fields.size(); ++i)
      XF_CHECK(is_number(fields[i]), DataError, "{}, field {} ({}): expected a number, found {}", lines.where(), i + 1,
               kFields[i], quoted(fields[i]));
    XF_CHECK(!fields[0].empty() && !fields[1].empty() && !leads_out(fields[0], fields[1]), DataError,
             "{}: expected an image below the folder, found {}", lines.where(),
             xformer::quoted(fmt::format("{} {}", fields[0], fields[1])));
    XF_CHECK(fields[3] == "0" || fields[3] == "1", DataError, "{}, field 4 (label): expected 0 or 1, found {}",
             lines.where(), quoted(fields[3]));
    rows.push_back({fmt::format("{}/{}", fields[0], fields[1]), fields[3] == "1" ? 1 : 0, lines.line_number()});
  }
  XF_CHECK(!rows.empty(), DataError, "{} is empty: expected rows of {}", path.string(), fmt::join(kFields, " "));
  return rows;
}

}  // namespace xformer::readers::pathfinder
