#include "core/files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/file_operations.h"
#include "core/plain_files.h"

namespace xformer {
namespace {

namespace ops = file_operations;

constexpr size_t kWriteBuffer = size_t{1} << 20;
constexpr int kMostLinks = 40;  // as many as Linux follows

// Closes at the end of a scope, whatever happens.
struct Descriptor {
  int value = -1;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  ~Descriptor() { close_now(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int close_now() {
    const int closing = std::exchange(value, -1);
    return closing < 0 || ::close(closing) == 0 ? 0 : errno;
  }
};

// Removes the temporary file unless the rename has made it the real one.
struct TemporaryFile {
  Path path;
  bool kept = false;
  ~TemporaryFile() {
    if (!kept) ::unlink(path.c_str());
  }
};

// Where a link, or a chain of them, ends, whether or not there is anything.
Path end_of_links(const Path& path) {
  Path result = path;
  std::error_code ignored;
  for (int links = 0; std::filesystem::is_symlink(result, ignored); ++links) {
    if (links == kMostLinks) ops::fail("write", path, ELOOP);
    result = result.parent_path() / std::filesystem::read_symlink(result, ignored);
  }
  return result;
}

void write_pieces(int descriptor, const Path& path, const std::function<void(const ByteSink&)>& produce) {
  std::string buffer;
  const auto flush = [&](std::string_view bytes) {
    if (const int error = ops::write_all(descriptor, bytes); error != 0) ops::fail("write", path, error);
  };
  produce([&](std::string_view bytes) {
    if (buffer.size() + bytes.size() > kWriteBuffer) {
      flush(buffer);
      buffer.clear();
      if (bytes.size() > kWriteBuffer) return flush(bytes);
    }
    buffer.append(bytes);
  });
  flush(buffer);
}

// Opened without waiting for a reader, who may never come.
void write_pipe(const Path& path, const std::function<void(const ByteSink&)>& produce) {
  const Descriptor descriptor(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  XF_CHECK(descriptor.value >= 0 || errno != ENXIO, ResourceError, "cannot write {}: it is a pipe that nobody reads",
           path.string());
  if (descriptor.value < 0 || ::fcntl(descriptor.value, F_SETFL, 0) != 0) ops::fail("write", path, errno);
  write_pieces(descriptor.value, path, produce);
}

}  // namespace

std::string kind_of_file(const Path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  const std::string other = name_of_kind(status.st_mode);
  return other.empty() ? "a plain file" : other;
}

std::string read_file(const Path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (descriptor.value < 0 || ::fstat(descriptor.value, &status) != 0) fail_reading(path, errno);
  XF_CHECK(!S_ISDIR(status.st_mode), DataError, "cannot read {}: expected a file, found a folder", path.string());
  std::string content;
  content.reserve(static_cast<size_t>(status.st_size));
  char buffer[1 << 16];
  while (true) {  // until the end, not until st_size: pipes and /proc report 0
    const ssize_t count = ::read(descriptor.value, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_reading(path, errno);
    if (count == 0) return content;
    content.append(buffer, static_cast<size_t>(count));
  }
}

void write_file_atomically(const Path& path, std::string_view content) {
  write_file_atomically(path, [content](const ByteSink& sink) { sink(content); });
}

void write_file_atomically(const Path& path, const std::function<void(const ByteSink&)>& produce) {
  const std::string kind = kind_of_file(path);
  if (kind == "a pipe") return write_pipe(path, produce);
  XF_CHECK(kind.empty() || kind == "a plain file", UserError,
           "cannot write {}: expected a plain file, a pipe or nothing there, found {}", path.string(), kind);
  const Path target = end_of_links(path);
  ops::remove_abandoned(target);  // what a killed process left of its attempt at this file
  TemporaryFile temporary{ops::temporary_name(target)};
  Descriptor descriptor(::open(temporary.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (descriptor.value < 0) {
    temporary.kept = true;  // not ours to remove
    ops::fail("write", path, errno);
  }
  struct stat replaced {};
  if (::stat(target.c_str(), &replaced) == 0 && ::fchmod(descriptor.value, replaced.st_mode & 07777) != 0)
    ops::fail("write", path, errno);
  write_pieces(descriptor.value, path, produce);
  // A failed sync may have dropped the pages already: trying again would report a success that is none.
  if (const int error = ops::sync(descriptor.value); error != 0) ops::fail("write", path, error);
  if (const int error = descriptor.close_now(); error != 0) ops::fail("write", path, error);
  if (const int error = ops::rename(temporary.path, target); error != 0) ops::fail("replace", path, error);
  temporary.kept = true;
  if (const int error = ops::sync_folder(target.parent_path()); error != 0)
    ops::fail("sync the folder of", path, error);
}

void make_folders(const Path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  XF_CHECK(!error, ResourceError, "cannot make the folder {}: {}", folder.string(), error.message());
}

void check_folder_can_be_made(const Path& folder, const std::string& what) {
  Path there = std::filesystem::absolute(folder.empty() ? "." : folder);
  std::error_code error;
  while (there.has_relative_path() && !std::filesystem::exists(there, error)) there = there.parent_path();
  XF_CHECK(std::filesystem::is_directory(there, error), UserError, "{}: cannot make {}: {} is no folder",
           folder.string(), what, there.string());
  XF_CHECK(::access(there.c_str(), W_OK) == 0, ResourceError, "{}: cannot make {}: {}: Permission denied",
           folder.string(), what, there.string());
}

void check_named_file(const std::string& option, const std::string& file) {
  if (file.empty()) return;
  const Path folder = Path(file).parent_path();
  std::error_code error;
  XF_CHECK(folder.empty() || std::filesystem::is_directory(folder, error), UserError, "{} {}: there is no folder {}",
           option, file, folder.string());
  XF_CHECK(!std::filesystem::is_directory(file, error), UserError, "{} {}: expected a file's name, this is a folder",
           option, file);
  const Path there = folder.empty() ? Path(".") : folder;
  XF_CHECK(::access(there.c_str(), W_OK) == 0, ResourceError, "{} {}: nothing can be written in {}: {}", option, file,
           there.string(), std::generic_category().message(errno));
}

AppendFile::AppendFile(const Path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) ops::fail("write", path, errno);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::write(std::string_view bytes) {
  const uint64_t before = size();
  if (const int error = ops::write_all(descriptor_, bytes); error != 0) {
    // Half a line would be read back as damage: take it off again as far as the system lets us.
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, static_cast<off_t>(before));
    ops::fail("write", path_, error);
  }
}

void AppendFile::sync() {
  if (const int error = ops::sync(descriptor_); error != 0) ops::fail("write", path_, error);
}

uint64_t AppendFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) ops::fail("ask for the size of", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

void AppendFile::truncate(uint64_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) ops::fail("shorten", path_, errno);
}

std::optional<FileLock> FileLock::try_lock(const Path& path) {
  Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (descriptor.value < 0) ops::fail("lock", path, errno);
  // flock, not fcntl: it also excludes a second descriptor of the same process, and closing an
  // unrelated descriptor of the file does not lose it.
  while (::flock(descriptor.value, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    if (errno != EINTR) ops::fail("lock", path, errno);
  }
  return FileLock(std::exchange(descriptor.value, -1));
}

FileLock FileLock::wait(const Path& path) {
  Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (descriptor.value < 0) ops::fail("lock", path, errno);
  while (::flock(descriptor.value, LOCK_EX) != 0)
    if (errno != EINTR) ops::fail("lock", path, errno);
  return FileLock(std::exchange(descriptor.value, -1));
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MappedFile::MappedFile(const Path& path) {
  const Descriptor descriptor(open_plain_file(path));
  struct stat status {};
  if (::fstat(descriptor.value, &status) != 0) fail_reading(path, errno);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor.value, 0);
  if (address == MAP_FAILED) fail_reading(path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Path cache_folder() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string own = variable("XFORMER_CACHE"); !own.empty()) return std::filesystem::absolute(own);
  // The standard says that a relative XDG_CACHE_HOME is to be ignored.
  if (const Path shared = variable("XDG_CACHE_HOME"); shared.is_absolute()) return shared / "xformer";
  if (const std::string home = variable("HOME"); !home.empty()) return Path(home) / ".cache" / "xformer";
  const passwd* user = ::getpwuid(::getuid());
  XF_CHECK(user != nullptr && user->pw_dir != nullptr, UserError,
           "no folder for the cache: neither XFORMER_CACHE nor XDG_CACHE_HOME nor HOME is set");
  return Path(user->pw_dir) / ".cache" / "xformer";
}

}  // namespace xformer
