// One packed split on disk, written front to back and read through a memory map. Used by cache.cpp only.
//
//   8 bytes magic, 4 bytes version, 2 bytes bytes of an element (1: ids, 4: numbers), 2 bytes sequences of an example
//   the elements of all sequences of all examples, padded with zeros to a multiple of 8 bytes
//   count * sequences + 1 offsets of 8 bytes into the elements
//   count targets of 4 bytes (a class, or a number as a float), padded with zeros to a multiple of 8
//   8 bytes count, 8 bytes number of elements, 8 bytes magic: what was cut off is missed at once
// Numbers are little-endian. The counts come last so that a build needs neither a second pass nor memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/hash.h"
#include "data/source.h"

namespace xformer::data::cache_format {

class SplitWriter {
 public:
  SplitWriter(const Path& path, const DataShape& shape);  // the file must not exist
  ~SplitWriter();
  SplitWriter(const SplitWriter&) = delete;
  SplitWriter& operator=(const SplitWriter&) = delete;
  void add(const Example& example);
  void finish();  // writes what is left and syncs it
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(targets_.size()); }
  [[nodiscard]] std::string content_hash() { return hash_.hex(); }  // of targets, lengths and elements; call once

 private:
  void write(std::string_view bytes);
  void flush();
  void pad();

  Path path_;
  DataShape shape_;
  int descriptor_ = -1;
  std::string buffer_;
  uint64_t written_ = 0;
  std::vector<uint64_t> offsets_{0};
  std::vector<uint32_t> targets_;
  Sha256 hash_;
};

class SplitMap {
 public:
  // DataErrors name the file.
  SplitMap(const Path& path, int64_t version, const DataShape& shape);
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] Example read(int64_t index) const;

 private:
  MappedFile file_;
  int64_t sequences_ = 1;
  bool numbers_ = false, number_target_ = false;
  const std::byte* elements_ = nullptr;
  const uint64_t* offsets_ = nullptr;
  const uint32_t* targets_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace xformer::data::cache_format
