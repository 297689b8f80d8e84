#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace xformer {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view text) {
  static constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string format_bytes(uint64_t bytes) {
  static constexpr std::array<std::string_view, 7> kUnits{"B", "KB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {  // 999,950 would print as 1000.0 KB
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  if (seconds > 3e9) return "?";
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string format_count(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, 1, ',');
  return digits;
}

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

namespace {
// The bytes of the first `columns` code points.
size_t bytes_of(std::string_view text, size_t columns) {
  size_t bytes = 0;
  while (bytes < text.size() && columns-- > 0) do
      ++bytes;
    while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80);
  return bytes;
}
}  // namespace

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  width = std::max<size_t>(width, 1);
  std::vector<std::string> lines(1);
  for (std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    if (!lines.back().empty()) {
      if (columns_of(lines.back()) + 1 + columns_of(word) <= width) {
        (lines.back() += ' ') += word;
        continue;
      }
      lines.emplace_back();
    }
    for (; columns_of(word) > width; lines.emplace_back()) {
      const size_t part = bytes_of(word, width);
      lines.back() = word.substr(0, part);
      word.remove_prefix(part);
    }
    lines.back() = word;
  }
  return lines;
}

std::string quoted(std::string_view bytes, size_t limit) {
  std::string result = "'";
  for (const char letter : bytes.substr(0, limit)) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\t') result += "\\t";
    else if (letter == '\n') result += "\\n";
    else if (letter == '\r') result += "\\r";
    else if (code < 0x20 || code >= 0x7f) result += fmt::format("\\x{:02x}", code);
    else result += letter;
  }
  result += bytes.size() > limit ? "...'" : "'";
  return result;
}

std::string shell_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n\"'$`*?[]{}()|&;<>\\#~!") == std::string::npos) return word;
  std::string result = "'";
  for (const char letter : word) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

}  // namespace xformer
