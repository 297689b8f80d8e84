// The symbols of a stream of text that is predicted: its bytes, or the 27 characters of text8.
#pragma once

#include <cstdint>

namespace xformer::data {

class StreamSymbols {
 public:
  // Letters: a blank and a to z, 0 to 26; else every byte is itself.
  explicit constexpr StreamSymbols(bool letters) : letters_(letters) {}
  [[nodiscard]] constexpr int64_t count() const { return letters_ ? 27 : 256; }
  // -1 for a byte that is none.
  [[nodiscard]] constexpr int16_t of(uint8_t byte) const {
    if (!letters_) return byte;
    if (byte == ' ') return 0;
    return byte >= 'a' && byte <= 'z' ? static_cast<int16_t>(byte - 'a' + 1) : int16_t{-1};
  }
  [[nodiscard]] constexpr char byte(int64_t symbol) const {
    return static_cast<char>(!letters_ ? symbol : symbol == 0 ? ' ' : 'a' + symbol - 1);
  }

 private:
  bool letters_;
};

}  // namespace xformer::data
