// Texts in UTF-8, code point by code point.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace xformer {

inline constexpr char32_t kNoCodePoint = 0xFFFD;  // the replacement character

// The code point that begins at `at`, which moves behind it; kNoCodePoint and one byte where none does (RFC 3629: no
// longer form than needed, no surrogate, none above U+10FFFF).
[[nodiscard]] char32_t take_code_point(std::string_view bytes, size_t& at);

// Of the first byte that is part of no code point; the size where all are.
[[nodiscard]] size_t first_damaged_byte(std::string_view bytes);

[[nodiscard]] inline bool is_utf8(std::string_view bytes) { return first_damaged_byte(bytes) == bytes.size(); }

// Names of files are any bytes, texts in JSON are not: those that are part of no code point become "\xe9".
[[nodiscard]] std::string as_utf8(std::string_view bytes);

}  // namespace xformer
