// What the project knows of the files that a dataset is made of: datasets/<name>/manifest.json, compiled in.
//
//   "files": [{"name", "bytes", "sha256", "md5"}]   null or left out where neither the publisher says it nor a file of
//                                                   that name was ever held; what more there is, data/fetch.h tells
//              "set": the only task of the dataset that needs it, e.g. "adult", or a list of such; left out: every one
//              "folder": where an archive of the publisher has it; it may lie there or in the folder itself
#pragma once

#include <vector>

#include "data/check.h"
#include "readers/download.h"

namespace xformer::data {

// The manifest of `task`: the one of that name ("uea" for "uea/<any>") or with it among its "tasks"; an empty object
// where there is none.
[[nodiscard]] const Json& manifest_of(const std::string& task);

// Whether a file belongs to a task, by its full name.
[[nodiscard]] bool needed_by(const Json& file, const std::string& task);

// Size and hashes of one entry of "files", as far as they are stated.
[[nodiscard]] readers::ExpectedFile expected_file(const Json& file);

// What the first fetch of a file of unknown hash found (data/fetch.h): {name: sha256} in this file of a folder; an
// empty object where it is not.
inline constexpr const char* kFetchedHashes = "fetched.json";
[[nodiscard]] Json first_hashes(const Path& folder);

// Compares the files in `folder`, or the file that it is, with the hashes that the manifest states or the first fetch
// found. One that differs was changed, cut or is another version: a failed check that names it. A note where no file
// has a known hash.
void check_known_files(const std::string& task, const Path& folder, CheckReport& report);

// The manifests' texts (cmake/EmbeddedTexts.cmake).
[[nodiscard]] const std::vector<const char*>& manifest_texts();

}  // namespace xformer::data
