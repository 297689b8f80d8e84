// The bytes of a plain or gzip file, block by block, decompressed. gzip is known by its first bytes, not by the name.
//
// Errors are DataErrors that name the file: what is no plain file, a gzip stream that is cut or damaged.
#pragma once

#include <memory>
#include <string>

#include "core/files.h"

namespace xformer::readers {

class ByteSource {
 public:
  explicit ByteSource(const Path& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Appends 64 KiB at most; false at the end of the file.
  [[nodiscard]] bool append_to(std::string& bytes);
  [[nodiscard]] uint64_t bytes_read() const;  // of the file as it lies there, compressed or not

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace xformer::readers
