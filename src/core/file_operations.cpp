#include "core/file_operations.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace xformer::testing {
std::function<int(std::string_view, int64_t)> file_fault;
}  // namespace xformer::testing

namespace xformer::file_operations {
namespace {

int injected(std::string_view operation) {
  static std::atomic<int64_t> number{0};
  const int64_t mine = number++;
  return testing::file_fault ? testing::file_fault(operation, mine) : 0;
}

std::string temporary_prefix(const Path& path) { return fmt::format(".{}.tmp-", path.filename().string()); }

}  // namespace

int write_once(int descriptor, std::string_view bytes, size_t& written) {
  if (const int fault = injected("write"); fault != 0) {
    // A disk that fills up takes part of the bytes first: so does the injected fault.
    const ssize_t part = bytes.size() > 1 ? ::write(descriptor, bytes.data(), bytes.size() / 2) : 0;
    if (part > 0) written += static_cast<size_t>(part);
    return fault;
  }
  ssize_t count = 0;
  do count = ::write(descriptor, bytes.data(), bytes.size());
  while (count < 0 && errno == EINTR);
  if (count < 0) return errno;
  written += static_cast<size_t>(count);
  return 0;
}

int write_all(int descriptor, std::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const size_t before = written;
    if (const int error = write_once(descriptor, bytes.substr(written), written); error != 0) return error;
    if (written == before) return EIO;  // a write that takes nothing and reports nothing would loop for ever
  }
  return 0;
}

int sync(int descriptor) {
  if (const int fault = injected("sync"); fault != 0) return fault;
  return ::fsync(descriptor) == 0 ? 0 : errno;
}

int rename(const Path& from, const Path& to) {
  if (const int fault = injected("rename"); fault != 0) return fault;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int sync_folder(const Path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  int error = sync(descriptor);
  ::close(descriptor);
  // Some file systems cannot sync a folder and say so; the rename is then as safe as it can be.
  if (error == EINVAL || error == ENOTSUP) error = 0;
  return error;
}

void fail(std::string_view what, const Path& path, int error) {
  throw ResourceError(fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
}

Path temporary_name(const Path& path) {
  static std::atomic<uint64_t> number{0};
  return path.parent_path() / fmt::format("{}{}-{}", temporary_prefix(path), ::getpid(), number++);
}

void remove_abandoned(const Path& path) noexcept {
  try {
    const std::string prefix = temporary_prefix(path);
    const Path folder = path.parent_path().empty() ? Path(".") : path.parent_path();
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(prefix)) continue;
      pid_t owner = 0;
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), owner);
      if (owner > 0 && ::kill(owner, 0) != 0 && errno == ESRCH) std::filesystem::remove_all(entry.path());
    }
  } catch (...) {
    // Tidying must not fail the save that it precedes.
  }
}

TemporaryFolder::TemporaryFolder(Path path) : path_(std::move(path)) {
  std::error_code error;
  if (!std::filesystem::create_directory(path_, error)) fail("make the folder", path_, error.value());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!kept_) std::filesystem::remove_all(path_, ignored);
}

void TemporaryFolder::rename_to(const Path& target) {
  if (const int error = sync_folder(path_); error != 0) fail("write", path_, error);
  if (const int error = file_operations::rename(path_, target); error != 0) fail("make the folder", target, error);
  kept_ = true;
  // Whether the rename survives a power cut is unknown; report it, and leave what is complete.
  if (const int error = sync_folder(target.parent_path()); error != 0)
    fail("sync the folder", target.parent_path(), error);
}

}  // namespace xformer::file_operations
