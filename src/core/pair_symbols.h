// The ids of examples that are a source and a text written about it: 0 padding, 1 a mark in front of the written text
// (and between the parts of a source), and then what can be written, the end first: class c of the scores is id c + 2.
// Bytes as symbols: byte b is class b + 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xformer {

inline constexpr int64_t kMarkId = 1, kEndId = 2, kFirstByteId = 3;
inline constexpr int64_t kEndClass = 0;
inline constexpr int64_t kPairClasses = 257, kPairVocabulary = kEndId + kPairClasses;

// The bytes of ids up to the first that is none.
template <class Ids>
[[nodiscard]] std::string bytes_of_ids(const Ids& ids) {
  std::string result;
  for (const auto id : ids) {
    if (id < kFirstByteId) break;
    result += static_cast<char>(id - kFirstByteId);
  }
  return result;
}

inline void append_bytes(std::vector<uint16_t>& ids, std::string_view text) {
  for (const char byte : text) ids.push_back(static_cast<uint16_t>(kFirstByteId + static_cast<uint8_t>(byte)));
}

}  // namespace xformer
