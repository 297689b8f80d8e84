// One packed split on disk, written front to back and read through a memory map. Used by cache.cpp only.
//
//   8 bytes magic, 4 bytes version, 4 bytes zero
//   the tokens of all examples, one byte each, padded with zeros to a multiple of 8
//   count + 1 offsets of 8 bytes into the tokens
//   count labels of 4 bytes, padded with zeros to a multiple of 8
//   8 bytes count, 8 bytes number of tokens, 8 bytes magic: what was cut off is missed at once
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
  explicit SplitWriter(const Path& path);  // the file must not exist
  ~SplitWriter();
  SplitWriter(const SplitWriter&) = delete;
  SplitWriter& operator=(const SplitWriter&) = delete;
  void add(std::span<const uint8_t> tokens, int64_t label);
  void finish();  // writes what is left and syncs it
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(labels_.size()); }
  [[nodiscard]] std::string content_hash() { return hash_.hex(); }  // of lengths, tokens and labels; call once

 private:
  void write(std::string_view bytes);
  void flush();
  void pad();

  Path path_;
  int descriptor_ = -1;
  std::string buffer_;
  uint64_t written_ = 0;
  std::vector<uint64_t> offsets_{0};
  std::vector<uint32_t> labels_;
  Sha256 hash_;
};

class SplitMap {
 public:
  // DataErrors name the file; `classes` bounds the labels.
  SplitMap(const Path& path, int64_t version, int64_t classes);
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] TokenExample read(int64_t index) const;

 private:
  MappedFile file_;
  const uint8_t* tokens_ = nullptr;
  const uint64_t* offsets_ = nullptr;
  const uint32_t* labels_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace xformer::data::cache_format
