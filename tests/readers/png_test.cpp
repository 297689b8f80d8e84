// Images in PNG: what is written is read, other kinds are turned into grey or colour, damage is refused.
#include "readers/png.h"

#include <png.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/error.h"
#include "scratch.h"

namespace xformer::png_test {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using readers::Image;

namespace {

Image decode(const std::string& file, int64_t channels) {
  return readers::decode_png(std::as_bytes(std::span(file.data(), file.size())), channels, "a.png");
}

// As libpng writes it in any of its formats.
std::string written(png_uint_32 format, png_uint_32 width, png_uint_32 height, const std::vector<uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  png_alloc_size_t bytes = 0;
  REQUIRE(png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, nullptr) != 0);
  std::string file(bytes, '\0');
  REQUIRE(png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr) != 0);
  return file.substr(0, bytes);
}

}  // namespace

TEST_CASE("what is written is read again, bit for bit") {
  Image grey{5, 3, 1, {}}, colour{2, 2, 3, {}};
  for (int i = 0; i < 15; ++i) grey.pixels.push_back(static_cast<uint8_t>(17 * i));
  for (int i = 0; i < 12; ++i) colour.pixels.push_back(static_cast<uint8_t>(255 - 20 * i));
  for (const Image& image : {grey, colour}) {
    const Image read = decode(readers::encode_png(image), image.channels);
    CHECK((read.width == image.width && read.height == image.height && read.pixels == image.pixels));
  }
}

TEST_CASE("grey becomes colour, colour grey, and transparency lies over black") {
  const Image colour = decode(readers::encode_png({1, 2, 1, {7, 200}}), 3);
  CHECK(colour.pixels == std::vector<uint8_t>{7, 7, 7, 200, 200, 200});
  const Image grey = decode(readers::encode_png({1, 1, 3, {90, 90, 90}}), 1);
  CHECK(std::abs(grey.pixels.at(0) - 90) <= 1);
  const Image seen = decode(written(PNG_FORMAT_RGBA, 1, 2, {10, 20, 30, 255, 10, 20, 30, 0}), 3);
  CHECK(seen.pixels == std::vector<uint8_t>{10, 20, 30, 0, 0, 0});
}

TEST_CASE("what is no PNG, is cut anywhere or claims too much is refused") {
  const auto refuses = [](const std::string& file, const std::string& words) {
    CHECK_THAT(scratch::message_of<DataError>([&] { (void)decode(file, 1); }),
               StartsWith("a.png: ") && Contains(words));
  };
  refuses("", "empty");
  refuses("not an image", "expected a PNG image");
  std::string whole = readers::encode_png({40, 40, 1, std::vector<uint8_t>(1600, 9)});
  for (size_t size = 1; size < whole.size() - 12; ++size)  // the last 12 bytes say only that it ends
    CHECK_THROWS_AS(decode(whole.substr(0, size), 1), DataError);
  for (const size_t at : {20UL, whole.size() / 2, whole.size() - 20}) {
    std::string damaged = whole;
    damaged[at] ^= 0x55;
    CHECK_THROWS_AS(decode(damaged, 1), DataError);
  }
  // 2^30 x 2^30 pixels, with the header's checksum: the size is refused before any memory is asked for.
  std::string huge = whole;
  for (const size_t at : {16, 20}) huge.replace(at, 4, std::string("\x40\0\0\0", 4));
  CHECK_THROWS_AS(decode(huge, 1), DataError);
}

}  // namespace xformer::png_test
