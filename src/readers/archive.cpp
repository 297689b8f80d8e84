#include "readers/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file_operations.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {

namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = size_t{1} << 16;
constexpr uint64_t kRatioFrom = uint64_t{16} << 20;
constexpr size_t kLongestName = 4096;
constexpr uint64_t kMostNameBytes = uint64_t{256} << 20;  // of all names together: they are kept
constexpr size_t kTarBlock = 512;

struct FreeArchive {
  void operator()(::archive* handle) const { archive_read_free(handle); }
};
struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose_r(file); }
};

uint64_t size_of(const Path& path) {
  const std::string other = other_than_a_file(path);
  XF_CHECK(other.empty(), DataError, "cannot read {}: expected an archive, found {}", path.string(), other);
  return fs::file_size(path);
}

bool is_zip(const Path& path) {
  std::array<char, 64> start{};
  std::ifstream file(path, std::ios::binary);
  XF_CHECK(file, ResourceError, "cannot read {}: {}", path.string(), std::strerror(errno));
  file.read(start.data(), start.size());
  const std::string_view first(start.data(), start.size());
  refuse_lfs_pointer(first, path.string());
  return first.starts_with("PK\3\4") || first.starts_with("PK\5\6");  // the second: a zip without members
}

// The bytes of a tar file, plain or gzip, by zlib: libarchive's own gzip filter compares no checksums.
class TarStream {
 public:
  explicit TarStream(const Path& path) : file_(gzopen(path.c_str(), "rbe")), block_(kBlock) {
    XF_CHECK(file_ != nullptr, ResourceError, "cannot read {}: {}", path.string(), std::strerror(errno));
  }

  // The number of bytes in block(); 0 at the end, -1 after an error.
  int read() {
    const int count = gzread(file_.get(), block_.data(), static_cast<unsigned>(block_.size()));
    if (count > 0) count_zeros(static_cast<size_t>(count));
    return count == 0 && problem() != nullptr ? -1 : count;
  }
  [[nodiscard]] const void* block() const { return block_.data(); }
  // nullptr when all is well. A gzip stream without its end is only told here.
  [[nodiscard]] const char* problem() const {
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    return code == Z_OK || code == Z_STREAM_END ? nullptr : code == Z_ERRNO ? std::strerror(errno) : message;
  }
  [[nodiscard]] bool ended_with_mark() const { return zeros_ >= kTarBlock; }
  [[nodiscard]] uint64_t position() const { return static_cast<uint64_t>(std::max<z_off_t>(gzoffset(file_.get()), 0)); }

 private:
  void count_zeros(size_t count) {
    size_t zeros = 0;
    while (zeros < count && block_[count - 1 - zeros] == 0) ++zeros;
    zeros_ = zeros == count ? zeros_ + zeros : zeros;
  }

  std::unique_ptr<gzFile_s, CloseGzip> file_;
  std::vector<char> block_;
  uint64_t zeros_ = 0;  // at the end of what was read
};

la_ssize_t read_tar(::archive* handle, void* stream, const void** bytes) {
  auto& tar = *static_cast<TarStream*>(stream);
  const int count = tar.read();
  if (count < 0) {
    archive_set_error(handle, EIO, "%s", tar.problem());
    return ARCHIVE_FATAL;
  }
  *bytes = tar.block();
  return count;
}

const char* kind_of(::archive_entry* entry) {
  if (archive_entry_hardlink(entry) != nullptr) return "a hard link";
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      return archive_entry_is_encrypted(entry) ? "an encrypted file" : nullptr;
    case AE_IFDIR:
      return nullptr;
    case AE_IFLNK:
      return "a symbolic link";
    case AE_IFCHR:
    case AE_IFBLK:
      return "a device";
    case AE_IFIFO:
      return "a pipe";
    case AE_IFSOCK:
      return "a socket";
    default:
      return "of an unknown kind";
  }
}

}  // namespace

// An archive that is walked from entry to entry; keeps the limits and the rules of names.
class ArchiveFile {
 public:
  ArchiveFile(const Path& path, const UnpackLimits& limits)
      : path_(path), limits_(limits), bytes_(size_of(path)), handle_(archive_read_new()), block_(kBlock) {
    XF_CHECK(handle_ != nullptr, ResourceError, "libarchive has no memory");
    int status = ARCHIVE_OK;
    if (is_zip(path)) {
      // By the directory at its end, without which a zip that is cut off would pass for a shorter one.
      archive_read_support_format_zip_seekable(handle_.get());
      status = archive_read_open_filename(handle_.get(), path.c_str(), kBlock);
    } else {
      archive_read_support_format_tar(handle_.get());
      tar_ = std::make_unique<TarStream>(path);
      status = archive_read_open(handle_.get(), tar_.get(), nullptr, read_tar, nullptr);
    }
    if (status != ARCHIVE_OK) fail();
  }

  // Goes to the next file; false after the last.
  bool next_file() {
    while (next_entry())
      if (archive_entry_filetype(entry_) == AE_IFREG) return true;
    return false;
  }

  std::string_view read() {
    const la_ssize_t count = archive_read_data(handle_.get(), block_.data(), block_.size());
    if (count < 0) fail();
    unpacked_ += static_cast<uint64_t>(count);
    XF_CHECK(unpacked_ <= limits_.bytes, DataError, "{}: its files have more than {}, the most that is accepted",
             where(), format_bytes(limits_.bytes));
    XF_CHECK(unpacked_ <= kRatioFrom || static_cast<double>(unpacked_) <= limits_.ratio * static_cast<double>(bytes_),
             DataError, "{}: its files have more than {:g} times the {} of the archive: data does not pack so well",
             where(), limits_.ratio, format_bytes(bytes_));
    return {block_.data(), static_cast<size_t>(count)};
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string where() const {
    return fmt::format("{}, entry {}", path_.string(), quoted(name_, kLongestName));
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t position() const {
    const la_int64_t zip = tar_ ? 0 : archive_filter_bytes(handle_.get(), -1);
    return std::min(bytes_, tar_ ? tar_->position() : static_cast<uint64_t>(std::max<la_int64_t>(zip, 0)));
  }

 private:
  bool next_entry() {
    const int status = archive_read_next_header(handle_.get(), &entry_);
    if (status == ARCHIVE_EOF) {
      check_end();
      return false;
    }
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) fail();
    ++entries_;
    XF_CHECK(entries_ <= limits_.entries, DataError, "{} has more than {} entries, the most that are accepted",
             path_.string(), format_count(static_cast<uint64_t>(limits_.entries)));
    const char* name = archive_entry_pathname(entry_);
    if (name == nullptr) name = archive_entry_pathname_utf8(entry_);
    XF_CHECK(name != nullptr && *name != '\0', DataError, "{}: entry {} has no readable name", path_.string(),
             entries_);
    take_name(name);
    const char* kind = kind_of(entry_);
    XF_CHECK(kind == nullptr, DataError, "{}: expected only files and folders, this is {}", where(), kind);
    remember(archive_entry_filetype(entry_) == AE_IFREG);
    return true;
  }

  // Sets name_ to the normal form of an entry's name.
  void take_name(std::string_view raw) {
    name_ = raw;
    XF_CHECK(raw.size() <= kLongestName, DataError, "{}, entry {}: a name of {} bytes, at most {} are accepted",
             path_.string(), quoted(raw), raw.size(), kLongestName);
    XF_CHECK(raw.front() != '/', DataError, "{}: expected a name relative to the archive, this one is absolute",
             where());
    std::string normal;
    for (const std::string_view part : split(raw, '/')) {
      XF_CHECK(part != "..", DataError, "{}: expected a name inside the archive, this one has '..'", where());
      if (part.empty() || part == ".") continue;
      if (!normal.empty()) normal += '/';
      normal += part;
    }
    name_ = std::move(normal);
  }

  // A path is one file, or a folder as often as it likes.
  void remember(bool file) {
    if (name_.empty()) {
      XF_CHECK(!file, DataError, "{}: entry {} is a file without a name", path_.string(), entries_);
      return;
    }
    for (size_t slash = name_.find('/'); slash != std::string::npos; slash = name_.find('/', slash + 1))
      remember(name_.substr(0, slash), false);
    XF_CHECK(remember(name_, file) || !file, DataError, "{}: this path comes twice", where());
  }

  // Whether the path is new.
  bool remember(const std::string& path, bool file) {
    const auto [known, is_new] = is_file_.emplace(path, file);
    if (is_new) {
      name_bytes_ += path.size();
      XF_CHECK(name_bytes_ <= kMostNameBytes, DataError, "{}: its names have more than {}, the most that is accepted",
               path_.string(), format_bytes(kMostNameBytes));
    }
    XF_CHECK(!known->second || file, DataError, "{}: {} is a file and a folder", where(), quoted(path, kLongestName));
    return is_new;
  }

  // libarchive is content with a tar that stops after a whole member, and does not read what follows the end mark.
  void check_end() {
    if (!tar_) return;
    int count = 0;
    while ((count = tar_->read()) > 0) {
    }
    if (count < 0) archive_set_error(handle_.get(), EIO, "%s", tar_->problem());
    else if (!tar_->ended_with_mark()) archive_set_error(handle_.get(), EIO, "no end mark");
    else return;
    fail();
  }

  [[noreturn]] void fail() const {
    const char* const said = archive_error_string(handle_.get());
    const char* const reason = said != nullptr ? said : "no reason given";
    XF_CHECK(entries_ > 0, DataError, "{} is no tar, tar.gz or zip archive, or is cut off or damaged: {}",
             path_.string(), reason);
    throw DataError(fmt::format("{} is cut off or damaged in or after its entry {}: {}; copy or download it again",
                                path_.string(), quoted(name_, kLongestName), reason));
  }

  Path path_;
  UnpackLimits limits_;
  uint64_t bytes_;
  std::unique_ptr<TarStream> tar_;  // outlives handle_, which reads from it
  std::unique_ptr<::archive, FreeArchive> handle_;
  std::vector<char> block_;
  ::archive_entry* entry_ = nullptr;
  std::string name_;
  int64_t entries_ = 0;
  uint64_t unpacked_ = 0, name_bytes_ = 0;
  std::unordered_map<std::string, bool> is_file_;
};

namespace {

void write_entry(ArchiveFile& file, const Path& target) {
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) file_operations::fail("make the folder", target.parent_path(), error.value());
  const int descriptor = ::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) file_operations::fail("write", target, errno);
  int problem = 0;
  try {
    for (std::string_view bytes = file.read(); !bytes.empty() && problem == 0; bytes = file.read())
      problem = file_operations::write_all(descriptor, bytes);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::close(descriptor) != 0 && problem == 0) problem = errno;
  if (problem != 0) file_operations::fail("write", target, problem);
}

// All files of the file system at once: a sync for each of many small ones would take minutes.
void sync_all_below(const Path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) file_operations::fail("write", folder, errno);
  const int problem = ::syncfs(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (problem != 0) file_operations::fail("write", folder, problem);
}

}  // namespace

std::string_view EntryReader::read() { return file_.read(); }

std::string EntryReader::read_all(uint64_t most) {
  std::string content;
  for (std::string_view bytes = read(); !bytes.empty(); bytes = read()) {
    XF_CHECK(bytes.size() <= most - content.size(), DataError, "{}: expected at most {}, found a longer file", where(),
             format_bytes(most));
    content += bytes;
  }
  return content;
}

std::string EntryReader::where() const { return file_.where(); }
uint64_t EntryReader::archive_bytes() const { return file_.bytes(); }
uint64_t EntryReader::archive_position() const { return file_.position(); }

void for_each_entry(const Path& archive, const UnpackLimits& limits, const ReadEntry& file) {
  ArchiveFile entries(archive, limits);
  EntryReader reader(entries);
  while (entries.next_file()) file(entries.name(), reader);
}

void unpack(const Path& archive, const Path& folder, const UnpackLimits& limits, const ProgressCallback& progress,
            const std::function<bool(const std::string& path)>& wanted) {
  XF_CHECK(!fs::exists(folder), UserError, "cannot unpack {} to {}: something of that name is there already",
           archive.string(), folder.string());
  ArchiveFile file(archive, limits);
  file_operations::remove_abandoned(folder);
  file_operations::TemporaryFolder temporary(file_operations::temporary_name(folder));
  const std::string what = "unpacking " + archive.filename().string();
  while (file.next_file()) {
    if (progress) progress(what, file.position(), file.bytes());
    if (!wanted || wanted(file.name())) write_entry(file, temporary.path() / file.name());
  }
  sync_all_below(temporary.path());
  temporary.rename_to(folder);
}

}  // namespace xformer::readers
