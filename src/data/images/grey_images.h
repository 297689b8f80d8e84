// Grey images whose pixels are a sequence, row by row: how they are shown.
#pragma once

#include <cmath>
#include <string>

#include "data/source.h"
#include "readers/png.h"

namespace xformer::data {

[[nodiscard]] inline readers::Image grey_image(std::span<const uint8_t> pixels) {
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels.size()))));
  return {side, static_cast<int64_t>(pixels.size()) / side, 1, {pixels.begin(), pixels.end()}};
}

// A letter for two pixels, one above the other: letters are about twice as high as wide.
[[nodiscard]] inline std::string drawn_in_letters(std::span<const uint8_t> pixels) {
  constexpr std::string_view kShades = " .:-=+*#%@";
  const readers::Image image = grey_image(pixels);
  std::string picture;
  for (int64_t row = 0; row + 1 < image.height; row += 2) {
    for (int64_t column = 0; column < image.width; ++column) {
      const auto pixel = [&](int64_t r) { return int{pixels[static_cast<size_t>(r * image.width + column)]}; };
      picture += kShades[static_cast<size_t>((pixel(row) + pixel(row + 1)) / 2 * 10 / 256)];
    }
    picture += '\n';
  }
  return picture;
}

}  // namespace xformer::data
