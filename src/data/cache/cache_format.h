// One packed split on disk, written front to back and read through a memory map. Used by cache.cpp only.
//
//   8 bytes magic, 4 bytes version, 2 bytes bytes of a unit, 2 bytes parts of an example
//   the elements of all fields with places: example by example, sequence by sequence, field by field; each such part at
//   a multiple of its elements' size, all padded with zeros to a multiple of 8 bytes count * parts + 1 offsets of 8
//   bytes, in units: 0, then where each part ends count times a word of 4 bytes for each field without places (a class,
//   a number as a float), padded with zeros to a multiple of 8 8 bytes count, 8 bytes number of units, 8 bytes magic:
//   what was cut off is missed at once
// A unit is an element of the narrowest of those fields. Numbers are little-endian. The counts come last so that a
// build needs neither a second pass nor memory.
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
  [[nodiscard]] int64_t count() const { return count_; }
  // Of every example's fields without places, then of lengths and elements by part; call once.
  [[nodiscard]] std::string content_hash() { return hash_.hex(); }

 private:
  void write(std::string_view bytes);
  void flush();
  void pad(uint64_t to);

  Path path_;
  std::vector<Part> parts_;
  uint64_t unit_;
  int descriptor_ = -1;
  std::string buffer_;
  uint64_t written_ = 0;  // behind the header
  int64_t count_ = 0;
  std::vector<uint64_t> offsets_{0};
  std::vector<uint32_t> words_;
  Sha256 hash_;
};

class SplitMap {
 public:
  // DataErrors name the file.
  SplitMap(const Path& path, int64_t version, const DataShape& shape);
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] Example read(int64_t index) const;
  [[nodiscard]] std::string content_hash() const;  // as its writer made it; reads all

 private:
  [[nodiscard]] double word(int64_t index, size_t fact) const;  // of the fact-th field without places
  [[nodiscard]] Elements elements(int64_t index, size_t part) const;

  MappedFile file_;
  std::vector<Part> parts_;
  uint64_t unit_, facts_, sequences_;  // fields without places, and parts with
  const std::byte* elements_ = nullptr;
  const uint64_t* offsets_ = nullptr;
  const uint32_t* words_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace xformer::data::cache_format
