// `xformer data fetch`: a dataset's files from their publishers, as its manifest names them.
//
//   "files": [{"name", "urls": [...], "bytes", "sha256", "md5",
//              "set":    the only task of the dataset that needs it, e.g. "adult"; left out: every one
//              "unpack": the folder that the archive's files go to, "only": a part of the path of those wanted}]
//
// "<Name>" in a name or address stands for the set. A file whose hash the manifest does not know gets it fixed by the
// first fetch, in fetched.json beside it: a later one of other content is refused.
#pragma once

#include "data/manifests.h"
#include "readers/download.h"

namespace xformer::data {

struct FetchedFile {
  readers::Downloaded downloaded;
  bool hash_known = false;  // before it came
  Path unpacked;            // or empty
};

// UserError for a dataset whose manifest names no address, with what is known of where its files come from.
// `mirrors`: folders to take every file from instead, by its name.
[[nodiscard]] std::vector<FetchedFile> fetch(const std::string& task, const Path& folder,
                                             const std::vector<std::string>& mirrors,
                                             const readers::DownloadOptions& options);

}  // namespace xformer::data
