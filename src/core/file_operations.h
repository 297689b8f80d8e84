// The three system calls a save depends on, each asking testing::file_fault first, and a folder that appears
// whole. For code that writes files of its own kind (files.cpp, data/cache.cpp, readers/archive.cpp); everything
// else uses write_file_atomically.
#pragma once

#include <string>
#include <string_view>

#include "core/files.h"

namespace xformer::file_operations {

// Each returns 0 or the errno it failed with. `write_once` adds what it wrote to `written`.
[[nodiscard]] int write_once(int descriptor, std::string_view bytes, size_t& written);
[[nodiscard]] int write_all(int descriptor, std::string_view bytes);
[[nodiscard]] int sync(int descriptor);
[[nodiscard]] int rename(const Path& from, const Path& to);
[[nodiscard]] int sync_folder(const Path& folder);

// "cannot write /a/b: No space left on device", as a ResourceError.
[[noreturn]] void fail(std::string_view what, const Path& path, int error);

// The name of the process's next temporary file beside `path`: .<name>.tmp-<pid>-<number>
[[nodiscard]] Path temporary_name(const Path& path);

// Removes temporary files and folders beside `path` whose process is gone. Best effort, never throws.
void remove_abandoned(const Path& path) noexcept;

// A folder that exists only until it is renamed to its real name.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(Path path);  // makes it
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const Path& path() const { return path_; }
  void rename_to(const Path& target);

 private:
  Path path_;
  bool kept_ = false;
};

}  // namespace xformer::file_operations
