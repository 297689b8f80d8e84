// Texts as bytes, byte b as id b + 1, or as the characters in which Python prints a byte string: what tasks that read
// texts so share.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "data/source.h"

namespace xformer::data {

// `sequences` texts of at most `length` bytes, in one of two classes.
[[nodiscard]] inline DataShape byte_text_shape(int64_t length, int64_t sequences) {
  DataShape shape;
  shape.max_len = length;
  shape.vocabulary = 257;
  shape.id_offset = 1;
  shape.sequences = sequences;
  shape.target = class_target(2);
  return shape;
}

[[nodiscard]] inline std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

[[nodiscard]] inline std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Python's str(bytes), with which Paramixer's code makes characters of a review (tasks-more 14): b'...', a tab, line
// end or backslash as \t, \n, \r or two of it, what is not printable ASCII as \x and two digits; in double quotes where
// the text has single ones and no double ones. Here the 95 characters from ' ' to '~' are counted from 0, to be id 1
// to 95.
[[nodiscard]] inline std::string python_repr(std::string_view text) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  std::string result = std::string("b") + quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || c == quote) result += {'\\', c};
    else if (c == '\t') result += "\\t";
    else if (c == '\n') result += "\\n";
    else if (c == '\r') result += "\\r";
    else if (byte < ' ' || byte > '~') result += fmt::format("\\x{:02x}", byte);
    else result += c;
  }
  result += quote;
  for (char& c : result) c = static_cast<char>(c - ' ');
  return result;
}

// What python_repr made, as it reads.
[[nodiscard]] inline std::string printed_repr(std::string_view counted) {
  std::string result(counted);
  for (char& c : result) c = static_cast<char>(c + ' ');
  return result;
}

// One text of at most `length` such characters.
[[nodiscard]] inline DataShape python_repr_shape(int64_t length) {
  DataShape shape = byte_text_shape(length, 1);
  shape.vocabulary = 96;
  return shape;
}

}  // namespace xformer::data
