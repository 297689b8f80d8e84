#include "core/utf8.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

namespace xformer {

char32_t take_code_point(std::string_view bytes, size_t& at) {
  const auto first = static_cast<uint8_t>(bytes[at]);
  const size_t size = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  char32_t value = size == 1 ? first : size == 0 ? 0 : first & (0x7F >> size);
  bool fits = size > 0 && at + size <= bytes.size();
  for (size_t i = 1; fits && i < size; ++i) {
    const auto next = static_cast<uint8_t>(bytes[at + i]);
    fits = next >> 6 == 2;
    value = value << 6 | (next & 0x3F);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  fits = fits && value >= kLeast.at(size) && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF);
  at += fits ? size : 1;
  return fits ? value : kNoCodePoint;
}

size_t first_damaged_byte(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    // A replacement character that stands in the text itself has three bytes.
    if (take_code_point(bytes, at) == kNoCodePoint && at == begin + 1) return begin;
  }
  return bytes.size();
}

std::string as_utf8(std::string_view bytes) {
  std::string result;
  while (true) {
    const size_t whole = first_damaged_byte(bytes);
    result += bytes.substr(0, whole);
    if (whole == bytes.size()) return result;
    result += fmt::format("\\x{:02x}", static_cast<uint8_t>(bytes[whole]));
    bytes.remove_prefix(whole + 1);
  }
}

}  // namespace xformer
