// Images in PNG, through libpng, as grey or colour of 8 bits a channel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"

namespace xformer::readers {

struct Image {
  int64_t width = 0, height = 0, channels = 1;  // 1 grey, 3 red, green, blue
  std::vector<uint8_t> pixels;                  // [height, width, channels]
};

inline constexpr int64_t kMostPixels = int64_t{1} << 28;  // of one image: more is a damaged header

// As grey or colour, whatever is stored: palettes are looked up, 16 bits cut to 8, transparency is over black. Not a
// PNG, damaged or too large is a DataError. `origin` is the file's name for messages.
[[nodiscard]] Image decode_png(std::span<const std::byte> file, int64_t channels, const std::string& origin);

[[nodiscard]] std::string encode_png(const Image& image);

}  // namespace xformer::readers
