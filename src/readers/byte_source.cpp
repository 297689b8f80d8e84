#include "readers/byte_source.h"

#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/plain_files.h"

namespace xformer::readers {

namespace {
constexpr size_t kSourceBlock = size_t{1} << 16;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib's way to ask for the gzip wrapper
}  // namespace

class ByteSource::Stream {
 public:
  explicit Stream(const Path& path) : path_(path), input_(kSourceBlock) {
    descriptor_ = open_plain_file(path);
    try {
      while (available_ < 2 && read_more()) {
      }
      gzip_ = starts_with_magic();
      if (gzip_) XF_CHECK(inflateInit2(&stream_, kGzipOnly) == Z_OK, ResourceError, "zlib has no memory");
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
  }
  ~Stream() {
    if (gzip_) inflateEnd(&stream_);
    ::close(descriptor_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] uint64_t bytes_read() const { return bytes_read_; }

  // Appends at most kSourceBlock bytes; false at the end of the file.
  bool append_to(std::string& bytes) {
    if (gzip_) return inflate_block(bytes);
    if (available_ == 0 && !read_more()) return false;
    bytes.append(reinterpret_cast<const char*>(input_.data() + first_), available_);
    available_ = 0;
    return true;
  }

 private:
  bool starts_with_magic() const { return available_ >= 2 && input_[first_] == 0x1f && input_[first_ + 1] == 0x8b; }

  bool read_more() {
    if (available_ > 0 && first_ > 0) std::memmove(input_.data(), input_.data() + first_, available_);
    first_ = 0;
    ssize_t count = 0;
    do count = ::read(descriptor_, input_.data() + available_, input_.size() - available_);
    while (count < 0 && errno == EINTR);
    XF_CHECK(count >= 0, DataError, "cannot read {}: {}", path_.string(), std::strerror(errno));
    available_ += static_cast<size_t>(count);
    bytes_read_ += static_cast<uint64_t>(count);
    return count > 0;
  }

  bool inflate_block(std::string& bytes) {
    if (finished_) return false;
    const size_t before = bytes.size();
    bytes.resize(before + kSourceBlock);
    size_t made = 0;
    while (made == 0 && !finished_) {
      if (available_ == 0 && !read_more())
        throw DataError(
            fmt::format("{} is cut off: its gzip stream has no end; copy or download it again", path_.string()));
      stream_.next_in = input_.data() + first_;
      stream_.avail_in = static_cast<uInt>(available_);
      stream_.next_out = reinterpret_cast<Bytef*>(bytes.data() + before);
      stream_.avail_out = static_cast<uInt>(kSourceBlock);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      first_ += available_ - stream_.avail_in;
      available_ = stream_.avail_in;
      made = kSourceBlock - stream_.avail_out;
      if (status == Z_STREAM_END) start_next_member();
      else if (status != Z_OK && status != Z_BUF_ERROR)
        throw DataError(fmt::format("{} is damaged: its gzip stream breaks off with '{}'; copy or download it again",
                                    path_.string(), stream_.msg != nullptr ? stream_.msg : "no reason given"));
    }
    bytes.resize(before + made);
    return made > 0;
  }

  // gzip allows several streams one after the other, and tapes pad the end with zeros.
  void start_next_member() {
    while (available_ < 2 && read_more()) {
    }
    if (starts_with_magic()) {
      inflateReset(&stream_);
      return;
    }
    finished_ = true;
    do {
      for (; available_ > 0; ++first_, --available_)
        XF_CHECK(input_[first_] == 0, DataError, "{} is damaged: bytes that are not gzip follow its gzip stream",
                 path_.string());
    } while (read_more());
  }

  Path path_;
  int descriptor_ = -1;
  bool gzip_ = false, finished_ = false;
  z_stream stream_{};
  std::vector<Bytef> input_;
  size_t first_ = 0, available_ = 0;  // what of input_ is still to be used
  uint64_t bytes_read_ = 0;
};

ByteSource::ByteSource(const Path& path) : stream_(std::make_unique<Stream>(path)) {}
ByteSource::~ByteSource() = default;
bool ByteSource::append_to(std::string& bytes) { return stream_->append_to(bytes); }
uint64_t ByteSource::bytes_read() const { return stream_->bytes_read(); }

}  // namespace xformer::readers
