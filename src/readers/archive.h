// The files in a tar, tar.gz or zip archive, streamed one after the other or unpacked, through libarchive.
//
// An archive is input like any other: links, devices and encrypted members, absolute names, names with "..", a
// path that comes twice or below a file, and sizes over the limits are DataErrors that name archive and entry;
// so is an archive that is cut off or damaged (gzip and zip checksums are compared). Kinds are told by content.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/files.h"
#include "core/progress_callback.h"

namespace xformer::readers {

struct UnpackLimits {
  int64_t entries = 2'000'000;
  uint64_t bytes = uint64_t{64} << 30;  // of all files that are read together
  double ratio = 200;                   // of these bytes over the archive's; asked from 16 MiB on
};

class ArchiveFile;

// The file that for_each_entry has come to. What a callback leaves unread is skipped.
class EntryReader {
 public:
  explicit EntryReader(ArchiveFile& file) : file_(file) {}
  // At most 64 KiB, valid until the next call; empty at the end of the file.
  [[nodiscard]] std::string_view read();
  // All that is left; more than `most` bytes are a DataError.
  [[nodiscard]] std::string read_all(uint64_t most);
  [[nodiscard]] std::string where() const;          // "data/aclImdb.tar.gz, entry 'aclImdb/README'"
  [[nodiscard]] uint64_t archive_bytes() const;     // of the whole archive, as it lies there
  [[nodiscard]] uint64_t archive_position() const;  // how many of these are used so far

 private:
  ArchiveFile& file_;
};

// Calls `file` for every file, in the archive's order. Paths are relative and normal: "a/b", never "./a//b".
using ReadEntry = std::function<void(const std::string& path, EntryReader& reader)>;
void for_each_entry(const Path& archive, const UnpackLimits& limits, const ReadEntry& file);

// Writes the files that `wanted` (empty: every one) says yes to below `folder`, which must not exist and appears by
// one rename when all are written; after a failure nothing is left. Permissions and times are not taken over.
void unpack(const Path& archive, const Path& folder, const UnpackLimits& limits, const ProgressCallback& progress,
            const std::function<bool(const std::string& path)>& wanted);

}  // namespace xformer::readers
