#include "readers/line_reader.h"

#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {

namespace {
constexpr size_t kBlock = size_t{1} << 16;
constexpr int kGzipOnly = 16 + MAX_WBITS;  // zlib's way to ask for the gzip wrapper
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// What a text may begin with: UTF-8 with its mark, which goes; what else there is gets its name.
void begin_text(std::string_view& line, bool ends_with_lf, const std::string& where) {
  refuse_lfs_pointer(line, where);
  XF_CHECK(!line.starts_with("\xff\xfe") && !line.starts_with("\xfe\xff"), DataError,
           "{}: expected text in UTF-8, found UTF-16: `iconv -f UTF-16 -t UTF-8` converts it", where);
  const bool binary = line.find('\0') != std::string_view::npos;
  XF_CHECK(ends_with_lf || binary || line.find('\r') == std::string_view::npos, DataError,
           "{}: expected lines that end in LF or CRLF, found CR alone (as on old Macintoshes): `tr '\\r' '\\n'` "
           "converts it",
           where);
  if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
}
}  // namespace

// The decompressed bytes of a file, block by block.
class LineReader::ByteSource {
 public:
  explicit ByteSource(const Path& path) : path_(path), input_(kBlock) {
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
  ~ByteSource() {
    if (gzip_) inflateEnd(&stream_);
    ::close(descriptor_);
  }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  [[nodiscard]] uint64_t bytes_read() const { return bytes_read_; }

  // Appends at most kBlock bytes; false at the end of the file.
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
    bytes.resize(before + kBlock);
    size_t made = 0;
    while (made == 0 && !finished_) {
      if (available_ == 0 && !read_more())
        throw DataError(
            fmt::format("{} is cut off: its gzip stream has no end; copy or download it again", path_.string()));
      stream_.next_in = input_.data() + first_;
      stream_.avail_in = static_cast<uInt>(available_);
      stream_.next_out = reinterpret_cast<Bytef*>(bytes.data() + before);
      stream_.avail_out = static_cast<uInt>(kBlock);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      first_ += available_ - stream_.avail_in;
      available_ = stream_.avail_in;
      made = kBlock - stream_.avail_out;
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

LineReader::LineReader(const Path& path, size_t longest_line)
    : path_(path), longest_line_(longest_line), source_(std::make_unique<ByteSource>(path)) {}

LineReader::~LineReader() = default;

std::string LineReader::where() const { return fmt::format("{}:{}", path_.string(), line_number_); }

uint64_t LineReader::bytes_read() const { return source_->bytes_read(); }

bool LineReader::next(std::string_view& line) {
  size_t end = std::string::npos;
  while (true) {
    end = buffer_.find('\n', searched_);
    if (end != std::string::npos) break;
    searched_ = buffer_.size();
    if (searched_ - begin_ > longest_line_ + 1 || ended_) break;  // + 1: the CR of a CRLF
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
    ended_ = !source_->append_to(buffer_);
  }
  const bool complete = end != std::string::npos;
  if (!complete) end = buffer_.size();
  if (!complete && ended_ && begin_ == end) return false;
  ++line_number_;
  line = std::string_view(buffer_).substr(begin_, end - begin_);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line_number_ == 1) begin_text(line, complete, where());
  XF_CHECK(line.size() <= longest_line_, DataError, "{}: expected lines of at most {}, found a longer one starting {}",
           where(), format_bytes(longest_line_), quoted(line));
  const size_t nul = line.find('\0');
  XF_CHECK(nul == std::string_view::npos, DataError,
           "{}: expected text, found a NUL byte at column {}: this is a binary file, or text in UTF-16", where(),
           nul + 1);
  begin_ = searched_ = complete ? end + 1 : end;
  return true;
}

}  // namespace xformer::readers
