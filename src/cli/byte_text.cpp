#include "cli/byte_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace xformer::cli {
namespace {

struct Bounds {
  uint8_t least, most;
};

// What the byte at `place` of a character with this first byte may be (Unicode 15, table 3-7).
Bounds bounds_of(uint8_t lead, size_t place) {
  if (place > 1) return {0x80, 0xbf};
  if (lead == 0xe0) return {0xa0, 0xbf};  // shorter forms
  if (lead == 0xed) return {0x80, 0x9f};  // surrogates
  if (lead == 0xf0) return {0x90, 0xbf};
  if (lead == 0xf4) return {0x80, 0x8f};  // above U+10FFFF
  if (lead == 0xc2) return {0xa0, 0xbf};  // control characters
  return {0x80, 0xbf};
}

// Bytes of a character that begins so; 0: none does.
size_t length_of(uint8_t lead) {
  if (lead == '\n' || lead == '\t' || (lead >= 0x20 && lead < 0x7f)) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

}  // namespace

std::string ByteText::add(std::string_view bytes) {
  waiting_ += bytes;
  std::string result;
  size_t begin = 0;
  while (begin < waiting_.size()) {
    const auto byte = [&](size_t place) { return static_cast<uint8_t>(waiting_[begin + place]); };
    const uint8_t lead = byte(0);
    size_t length = length_of(lead);
    const size_t there = std::min(length, waiting_.size() - begin);
    for (size_t i = 1; i < there && length > 0; ++i)
      if (const Bounds bounds = bounds_of(lead, i); byte(i) < bounds.least || byte(i) > bounds.most) length = 0;
    if (length > there) break;
    if (length == 0) result += fmt::format("\\x{:02x}", lead);
    else result += waiting_.substr(begin, length);
    begin += std::max<size_t>(length, 1);
  }
  waiting_.erase(0, begin);
  return result;
}

std::string ByteText::rest() {
  std::string result;
  for (const char letter : waiting_) result += fmt::format("\\x{:02x}", static_cast<uint8_t>(letter));
  waiting_.clear();
  return result;
}

}  // namespace xformer::cli
