#include "readers/line_reader.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"
#include "readers/byte_source.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {

namespace {
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

void require_utf8(std::string_view text, std::string_view where) {
  const size_t damaged = first_damaged_byte(text);
  XF_CHECK(damaged == text.size(), DataError, "{}: expected text in UTF-8, found the byte 0x{:02x} behind {}", where,
           static_cast<uint8_t>(text[damaged]),
           damaged == 0 ? "nothing"
                        : xformer::quoted(text.substr(damaged < 20 ? 0 : damaged - 20, std::min<size_t>(damaged, 20))));
}

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
