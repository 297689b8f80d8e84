// Texts as bytes: what tasks that read them byte by byte share. Byte b is id b + 1.
#pragma once

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
  shape.classes = 2;
  return shape;
}

[[nodiscard]] inline std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

[[nodiscard]] inline std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace xformer::data
