// Small helpers for words people read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xformer {

[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);
[[nodiscard]] std::string_view trim(std::string_view text);
[[nodiscard]] std::string format_bytes(
    uint64_t bytes);  // 1500 -> "1.5 KB" (powers of 1,000, as disks and papers count)
[[nodiscard]] std::string format_duration(double seconds);  // 3725 -> "1h02m"
[[nodiscard]] std::string format_count(uint64_t value);     // 96000 -> "96,000"
[[nodiscard]] size_t columns_of(std::string_view text);     // on a terminal: code points, so that "≤" is one
// Lines of at most `width` columns, at least one. Breaks at spaces, and inside a word only when the word alone is too
// long.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, size_t width);
// As a word of a POSIX shell's command line: in quotes where it needs them.
[[nodiscard]] std::string shell_word(const std::string& word);
// A clipped, printable form of bytes that came from a file, for messages.
[[nodiscard]] std::string quoted(std::string_view bytes, size_t limit = 40);

}  // namespace xformer
