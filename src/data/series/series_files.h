// Which files of a folder are a time-series set: NAME_TRAIN and NAME_TEST, each .ts before .arff, plain before .gz.
#pragma once

#include <optional>

#include "core/files.h"

namespace xformer::data {

struct SeriesFiles {
  std::string name;  // as the files spell it: "JapaneseVowels"
  std::optional<Path> train, test;
};

// `folder` is the set's own or holds a folder NAME, or Multivariate_ts/NAME as the whole archive does, which may lie in
// a folder NAME itself. Names compare without case, '-' and '_'. A folder without either file or, when both are
// required, one that lacks a file: a DataError that names what was looked for and what is there.
[[nodiscard]] SeriesFiles find_series_files(const Path& folder, const std::string& name, bool require_both);

}  // namespace xformer::data
