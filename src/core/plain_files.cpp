#include "core/plain_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace xformer {

std::string name_of_kind(mode_t mode) {
  if (S_ISREG(mode)) return "";
  return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

void fail_reading(const Path& path, int error) {
  struct stat link {};
  const bool dead = error == ENOENT && ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
  const std::string message =
      fmt::format("cannot read {}: {}", path.string(), dead ? "it is a link that leads nowhere" : std::strerror(error));
  if (error == EACCES || error == EPERM || error == ENOMEM || error == EMFILE || error == ENFILE)
    throw ResourceError(message);
  throw DataError(message);
}

void fail_reading(const std::filesystem::filesystem_error& error) { fail_reading(error.path1(), error.code().value()); }

std::string other_than_a_file(const Path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return name_of_kind(status.st_mode);
  const int error = errno;
  if (error == ELOOP) return "a link that leads to itself";
  if (error != ENOENT && error != ENOTDIR) fail_reading(path, error);
  return ::lstat(path.c_str(), &status) == 0 ? "a link that leads nowhere" : "nothing";
}

int open_plain_file(const Path& path) {
  // A pipe that nobody writes to would be waited for here.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_reading(path, errno);
  struct stat status {};
  const int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) return descriptor;
  ::close(descriptor);
  if (error != 0) fail_reading(path, error);
  throw DataError(
      fmt::format("cannot read {}: expected a file, found {}", path.string(), name_of_kind(status.st_mode)));
}

uint64_t size_of_plain_file(const Path& path) {
  const std::string other = other_than_a_file(path);
  XF_CHECK(other.empty(), DataError, "cannot read {}: expected a file, found {}", path.string(), other);
  return std::filesystem::file_size(path);
}

}  // namespace xformer
