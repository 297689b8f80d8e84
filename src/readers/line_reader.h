// The lines of a text file, plain or gzip, one at a time and in bounded memory.
//
// gzip is known by its first bytes, not by the name. Lines end in LF or CRLF; the last may lack its end. A UTF-8 byte
// order mark in front of the first is passed over.
// Errors are DataErrors that name file and line: a line longer than the limit, a NUL byte (a binary file), UTF-16,
// lines that end in CR alone, a Git LFS pointer, a gzip stream that is cut or damaged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/files.h"

namespace xformer::readers {

class ByteSource;

// DataError, with the place, where a text is no UTF-8.
void require_utf8(std::string_view text, std::string_view where);

class LineReader {
 public:
  static constexpr size_t kLongestLine = 1'000'000;

  explicit LineReader(const Path& path, size_t longest_line = kLongestLine);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end, valid until the following call; false after the last.
  [[nodiscard]] bool next(std::string_view& line);
  [[nodiscard]] int64_t line_number() const { return line_number_; }  // of the last line, counted from 1
  [[nodiscard]] const Path& path() const { return path_; }
  [[nodiscard]] std::string where() const;    // "folder/basic_train.tsv:17"
  [[nodiscard]] uint64_t bytes_read() const;  // of the file as it lies there, compressed or not

 private:
  Path path_;
  size_t longest_line_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;  // bytes of the file not yet handed out start at begin_
  size_t begin_ = 0;
  size_t searched_ = 0;  // no line end lies in front of this place
  bool ended_ = false;
  int64_t line_number_ = 0;
};

}  // namespace xformer::readers
