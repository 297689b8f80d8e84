// Which files of a folder are ListOps data.
//
// Looked for are basic_train.tsv, basic_val.tsv and basic_test.tsv (also basic.train.tsv, ...), each plain or
// .gz, in the folder itself, in listops-1000/ below it or in that of the arena's release (release_folders); where none
// of them is, test_d20s.tsv, the original test set.
#pragma once

#include <array>
#include <optional>

#include "data/source.h"
#include "readers/listops.h"

namespace xformer::data {

struct ListOpsFiles {
  std::array<std::optional<Path>, 3> paths;  // by Split
  readers::listops::Layout layout = readers::listops::Layout::kLra;
  [[nodiscard]] std::array<std::string, 3> names() const;  // file names, or the split's name where there is none
  [[nodiscard]] uint64_t bytes() const;                    // of all files together
};

// Neither a folder without any of the files nor, when all splits are required, one that lacks a split: a
// DataError that names what was looked for and what is there.
[[nodiscard]] ListOpsFiles find_listops_files(const Path& folder, bool require_all_splits);

}  // namespace xformer::data
