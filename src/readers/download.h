// One file over HTTP or HTTPS, through libcurl, which is loaded for it: begun anew or gone on with after an
// interruption, and never in place under its name before its size and hash are right.
//
// While it comes it is <name>.part, with what names its version on the server in <name>.part.tag; the next call goes on
// from there if the server still has that version. Errors: what the network or a server refuses is a ResourceError that
// says what was tried and what to do by hand; a file that is not the one expected is a DataError.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/progress_callback.h"

namespace xformer::readers {

// What is known of a file's content; empty: it is not.
struct ExpectedFile {
  std::optional<uint64_t> bytes;
  std::string sha256, md5;
};
// "has 14 bytes, expected 3974305"; "" where nothing that is known differs.
[[nodiscard]] std::string difference(const ExpectedFile& meant, const Path& path);

struct RemoteFile : ExpectedFile {
  std::string name;
  std::vector<std::string> urls;  // the first that answers is taken
};

struct DownloadOptions {
  int64_t stall_seconds = 30;  // without a byte, after which an attempt ends
  int64_t attempts = 5;        // for each address; each goes on where the last one ended
  int64_t redirects = 5;
  Path certificates;  // of authorities, PEM; empty: the system's
  ProgressCallback progress = [](std::string_view, uint64_t, uint64_t) {};
  std::function<bool()> stop_requested = [] { return false; };
};

struct Downloaded {
  Path path;
  std::string sha256;
  bool was_there = false;  // nothing was fetched
};

// Into `folder`, which is made. Interrupted when a stop was requested; what came so far stays.
[[nodiscard]] Downloaded download(const RemoteFile& file, const Path& folder, const DownloadOptions& options);

}  // namespace xformer::readers
