// What the targets for time-series files share: bytes read as a file, what every set that was read keeps, and that a
// set written by the target is read back as it was.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "readers/time_series.h"

namespace series_fuzz {

struct Set {
  std::vector<std::string> labels;
  std::vector<xformer::readers::SeriesCase> cases;
};

// Throws what the reader throws. The bytes lie in a file without a name.
inline Set read(const std::string& bytes) {
  static const int kFile = ::memfd_create("fuzzed", 0);
  if (kFile < 0 || ::ftruncate(kFile, 0) != 0 ||
      ::pwrite(kFile, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  xformer::readers::SeriesReader reader("/proc/self/fd/" + std::to_string(kFile));
  Set set{reader.header().class_labels, {}};
  for (xformer::readers::SeriesCase series; reader.next(series);) set.cases.push_back(series);
  return set;
}

// Nothing where the bytes are refused with an error of ours.
inline std::optional<Set> try_read(const std::string& bytes) {
  std::optional<Set> set;
  try {
    set = read(bytes);
  } catch (const xformer::Error&) {
    return std::nullopt;
  }
  if (set->labels.size() < 2 || set->cases.empty()) std::abort();
  for (const auto& series : set->cases) {
    if (series.label < 0 || series.label >= static_cast<int64_t>(set->labels.size())) std::abort();
    if (series.dimensions.empty() || series.dimensions.size() != set->cases.front().dimensions.size()) std::abort();
    for (const auto& values : series.dimensions) {
      if (values.empty()) std::abort();
      for (const float value : values)
        if (std::isinf(value)) std::abort();
    }
  }
  return set;
}

inline std::string written(float value) { return std::isnan(value) ? "?" : fmt::format("{}", value); }

inline void expect_same(const Set& set, const std::string& bytes) {
  const Set back = read(bytes);
  if (back.labels != set.labels || back.cases.size() != set.cases.size()) std::abort();
  for (size_t i = 0; i < set.cases.size(); ++i) {
    const auto &left = set.cases[i], &right = back.cases[i];
    if (left.label != right.label || left.dimensions.size() != right.dimensions.size()) std::abort();
    for (size_t d = 0; d < left.dimensions.size(); ++d) {
      if (left.dimensions[d].size() != right.dimensions[d].size()) std::abort();
      for (size_t t = 0; t < left.dimensions[d].size(); ++t) {
        const float a = left.dimensions[d][t], b = right.dimensions[d][t];
        if (a != b && !(std::isnan(a) && std::isnan(b))) std::abort();
      }
    }
  }
}

}  // namespace series_fuzz
