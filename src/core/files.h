// Files that survive crashes: atomic replacement, locks, read-only memory maps.
//
// Errors: a missing or unreadable file is a DataError, a full disk or a missing permission a
// ResourceError; both name the path and what the system said.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace xformer {

using Path = std::filesystem::path;

[[nodiscard]] std::string read_file(const Path& path);

// With all above it; ResourceError.
void make_folders(const Path& folder);
// Before work whose results are to lie there: "FOLDER: cannot make WHAT: ...", a UserError where what is above it is no
// folder, a ResourceError where nothing may be written there.
void check_folder_can_be_made(const Path& folder, const std::string& what);
// Before work whose result goes to a file that an option names; "": nothing does. UserError where its folder is not
// there, or it is one.
void check_named_file(const std::string& option, const std::string& file);

// Writes to a temporary name in the same folder, syncs it, renames it over `path`, syncs the folder.
// Whatever fails, `path` holds either its old or its new content and no temporary file stays. A link stays one: what it
// names is written. The file that is replaced leaves its mode behind. Into a pipe is written as it comes; ResourceError
// when nobody reads it. UserError for a folder, a device or a socket.
void write_file_atomically(const Path& path, std::string_view content);
// The same for content made piece by piece: `produce` is handed a sink it calls as often as it likes.
using ByteSink = std::function<void(std::string_view)>;
void write_file_atomically(const Path& path, const std::function<void(const ByteSink&)>& produce);

// What stands there, at the end of links: "a plain file", "a pipe", "a folder", "a device", "a socket"; "" for nothing.
[[nodiscard]] std::string kind_of_file(const Path& path);

// Appends one line with a single write call, so that a crash tears at most the last line. `sync` waits for the disk.
class AppendFile {
 public:
  explicit AppendFile(const Path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  void write(std::string_view bytes);
  void sync();
  [[nodiscard]] uint64_t size() const;
  void truncate(uint64_t size);  // cuts off what a killed run wrote after its last checkpoint

 private:
  Path path_;
  int descriptor_ = -1;
};

// An exclusive advisory lock on a file, released at destruction or when the process dies.
class FileLock {
 public:
  // nullopt when another process holds it.
  [[nodiscard]] static std::optional<FileLock> try_lock(const Path& path);
  [[nodiscard]] static FileLock wait(const Path& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();
  // For a child process that is to hold the lock as well.
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

// A whole file mapped read-only. An empty file gives an empty span.
class MappedFile {
 public:
  explicit MappedFile(const Path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// $XFORMER_CACHE, else $XDG_CACHE_HOME/xformer, else ~/.cache/xformer.
[[nodiscard]] Path cache_folder();

namespace testing {
// For tests of crashes: called before every write, sync and rename with the operation's running number;
// returns an errno to fail with, or 0. Empty: nothing is injected.
extern std::function<int(std::string_view operation, int64_t number)> file_fault;
}  // namespace testing

}  // namespace xformer
