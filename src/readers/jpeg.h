// Images in JPEG, through libjpeg-turbo, as red, green and blue of 8 bits, turned upright by their EXIF orientation.
#pragma once

#include "readers/png.h"

namespace xformer::readers {

// Grey becomes colour, CMYK and YCCK are multiplied out. No JPEG, one that is cut off or damaged beyond decoding and
// one of more than kMostPixels are DataErrors; bytes too many between its parts, as some cameras write, are passed
// over. `origin` is the file's name for messages.
[[nodiscard]] Image decode_jpeg(std::span<const std::byte> file, const std::string& origin);

// JPEG or PNG, by content, as colour.
[[nodiscard]] Image decode_image(std::span<const std::byte> file, const std::string& origin);

}  // namespace xformer::readers
