// `xformer data fetch`: a dataset's files from their publishers, as its manifest names them.
//
//   "files": [{"name", "urls": [...], "bytes", "sha256", "md5",
//              "about_bytes": the size in round figures, where the exact one was never seen
//              "set":    who needs it (data/manifests.h)
//              "from":   of a set that has several publishers: which one, for --from; left out: the usual one
//              "unpack": the folder that the archive's files go to, "only": a part of the path of those wanted}]
//
// "<Name>" in a name, address or path stands for the set. A file whose hash the manifest does not know gets it fixed by
// the first fetch, in fetched.json beside it: a later one of other content is refused.
#pragma once

#include <optional>

#include "data/manifests.h"
#include "readers/download.h"

namespace xformer::data {

struct FileToFetch : readers::RemoteFile {
  std::optional<uint64_t> about_bytes;
  Path unpack;       // below the folder, or empty
  std::string only;  // a part of the path of those entries that are wanted; "": all
  [[nodiscard]] bool hash_known() const { return !sha256.empty() || !md5.empty(); }
};
// Those of a task; none where its manifest names no address. `mirrors`: folders to take every file from instead, by its
// name. `from`: another publisher than the usual one; UserError where the task has none of that name.
[[nodiscard]] std::vector<FileToFetch> files_to_fetch(const std::string& task, const std::vector<std::string>& mirrors,
                                                      const std::string& from = "");
// The publishers of a task beside the usual one.
[[nodiscard]] std::vector<std::string> other_publishers(const std::string& task);

struct FetchedFile {
  readers::Downloaded downloaded;
  bool hash_known = false;  // before it came
  Path unpacked;            // or empty
};

[[nodiscard]] FetchedFile fetch(const FileToFetch& file, const Path& folder, const readers::DownloadOptions& options);

}  // namespace xformer::data
