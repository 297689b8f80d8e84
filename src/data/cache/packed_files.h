// What adapters of datasets in files share: the identity of raw files in a cache's key, and what a record says of them.
#pragma once

#include <vector>

#include "data/source.h"

namespace xformer::data {

// Path, size and time of each file stand for its content: reading it again would take longer than using it. A folder
// stands for the files in it, at any depth, as in tree_identity.
[[nodiscard]] Json file_identity(const std::vector<Path>& places);
// The same of many files below a folder, in this order: one hash over their names, sizes and times.
[[nodiscard]] Json tree_identity(const Path& root, const std::vector<std::string>& names);

// {"name", "bytes", "sha256"} of each file; of a folder the count of its files, their bytes and one hash over names and
// contents.
[[nodiscard]] Json file_facts(const std::vector<Path>& places);

// Where the folders of the Long Range Arena's release may be: `folder` itself, then what it holds whose name begins
// with lra_release, and lra_release/ once and twice below that, as its archive has it.
[[nodiscard]] std::vector<Path> release_folders(const Path& folder);

// The places of `count` examples in a seeded order: splits are cut from it.
[[nodiscard]] std::vector<int64_t> seeded_order(int64_t count, uint64_t seed, const std::string& purpose);

}  // namespace xformer::data
