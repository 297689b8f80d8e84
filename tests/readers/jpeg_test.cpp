// Images in JPEG: colours, grey and inks, orientations, damage.
#include "readers/jpeg.h"

#include <cstdio>

#include <jpeglib.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/error.h"
#include "scratch.h"

namespace xformer::jpeg_test {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using readers::Image;

namespace {

Image decode(const std::string& file) {
  return readers::decode_image(std::as_bytes(std::span(file.data(), file.size())), "a.jpeg");
}

// A JPEG of best quality without thinned-out colours; `exif` goes into it whole.
std::string written(const Image& image, J_COLOR_SPACE space, const std::string& exif = "") {
  jpeg_compress_struct out{};
  jpeg_error_mgr errors{};
  out.err = jpeg_std_error(&errors);
  jpeg_create_compress(&out);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&out, &bytes, &size);
  out.image_width = static_cast<JDIMENSION>(image.width);
  out.image_height = static_cast<JDIMENSION>(image.height);
  out.input_components = static_cast<int>(image.channels);
  out.in_color_space = space;
  jpeg_set_defaults(&out);
  jpeg_set_quality(&out, 100, TRUE);
  out.comp_info[0].h_samp_factor = out.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&out, TRUE);
  if (!exif.empty())
    jpeg_write_marker(&out, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  for (int64_t row = 0; row < image.height; ++row) {
    auto* pixels = const_cast<unsigned char*>(&image.pixels[static_cast<size_t>(row * image.width * image.channels)]);
    jpeg_write_scanlines(&out, &pixels, 1);
  }
  jpeg_finish_compress(&out);
  jpeg_destroy_compress(&out);
  const std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

Image filled(int64_t width, int64_t height, const std::vector<uint8_t>& pixel) {
  Image image{width, height, static_cast<int64_t>(pixel.size()), {}};
  for (int64_t i = 0; i < width * height; ++i) image.pixels.insert(image.pixels.end(), pixel.begin(), pixel.end());
  return image;
}

// EXIF with the orientation alone, in either byte order.
std::string exif(int orientation, bool big) {
  const std::string low(1, static_cast<char>(orientation)), zero(1, '\0');
  if (big)
    return std::string("Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 24) + zero + low +
           std::string(6, '\0');
  return std::string("Exif\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 24) + low + std::string(7, '\0');
}

bool near(const Image& image, int64_t row, int64_t column, std::array<int, 3> meant) {
  bool same = true;
  for (size_t i = 0; i < 3; ++i)
    same &= std::abs(image.pixels[static_cast<size_t>((row * image.width + column) * 3) + i] - meant[i]) <= 4;
  return same;
}

}  // namespace

TEST_CASE("colours come back, grey as three equal ones, inks multiplied out") {
  const Image colour = decode(written(filled(9, 5, {200, 30, 90}), JCS_RGB));
  CHECK((colour.width == 9 && colour.height == 5 && colour.channels == 3 && near(colour, 4, 8, {200, 30, 90})));
  CHECK(near(decode(written(filled(3, 3, {77}), JCS_GRAYSCALE)), 1, 1, {77, 77, 77}));
  // libjpeg writes Adobe's marker with CMYK, so the inks are inverted: 255 is none.
  const Image inks = decode(written(filled(4, 4, {255, 128, 0, 255}), JCS_CMYK));
  CHECK((inks.channels == 3 && near(inks, 2, 2, {255, 128, 0})));
  CHECK(near(decode(written(filled(4, 4, {255, 255, 255, 51}), JCS_CMYK)), 0, 0, {51, 51, 51}));
}

TEST_CASE("a picture is turned upright as its EXIF orientation says") {
  // 16 x 8: the left upper block is red, the rest white.
  Image stored = filled(16, 8, {255, 255, 255});
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t column = 0; column < 8; ++column)
      for (size_t i = 1; i < 3; ++i) stored.pixels[static_cast<size_t>((row * 16 + column) * 3) + i] = 0;
  // Where the red corner is then: right?, low?
  const std::array<std::pair<bool, bool>, 8> corners{{{false, false},
                                                      {true, false},
                                                      {true, true},
                                                      {false, true},
                                                      {false, false},
                                                      {true, false},
                                                      {true, true},
                                                      {false, true}}};
  for (const bool big : {false, true})
    for (int orientation = 1; orientation <= 8; ++orientation) {
      CAPTURE(orientation, big);
      const Image image = decode(written(stored, JCS_RGB, exif(orientation, big)));
      const bool turned = orientation >= 5;
      REQUIRE((image.width == (turned ? 8 : 16) && image.height == (turned ? 16 : 8)));
      const auto [right, low] = corners[static_cast<size_t>(orientation - 1)];
      for (const bool at_right : {false, true})
        for (const bool at_low : {false, true})
          CHECK(near(image, at_low ? image.height - 1 : 0, at_right ? image.width - 1 : 0, {255, 0, 0}) ==
                (at_right == right && at_low == low));
    }
  CHECK(decode(written(stored, JCS_RGB, exif(77, false))).width == 16);
  CHECK(decode(written(stored, JCS_RGB, std::string("Exif\0\0II\x2a\0\xff\xff\xff\x7f", 14))).width == 16);
  CHECK(decode(written(stored, JCS_RGB, std::string("Exif\0\0II", 8))).width == 16);
}

TEST_CASE("a PNG under the name of a JPEG is read as what it is") {
  CHECK(decode(readers::encode_png({1, 1, 3, {1, 2, 3}})).pixels == std::vector<uint8_t>{1, 2, 3});
}

TEST_CASE("what is no JPEG, or cut, is refused") {
  const auto refuses = [](const std::string& file, const std::string& words) {
    CHECK_THAT(scratch::message_of<DataError>([&] { (void)decode(file); }), StartsWith("a.jpeg: ") && Contains(words));
  };
  refuses("", "empty");
  refuses("no image at all", "expected a JPEG image");
  Image noise{64, 64, 3, {}};
  for (size_t i = 0; i < 64 * 64 * 3; ++i) noise.pixels.push_back(static_cast<uint8_t>(i * i * 7919 >> 5));
  const std::string whole = written(noise, JCS_RGB);
  for (size_t size = 2; size < whole.size() - 2; size += 97) CHECK_THROWS_AS(decode(whole.substr(0, size)), DataError);
  std::string huge = whole;
  const size_t frame = huge.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  huge.replace(frame + 5, 4, "\xff\xdc\xff\xdc");  // 65,500 x 65,500, the most that libjpeg takes
  refuses(huge, "at most");
}

TEST_CASE("genuine images of every kind decode") {
  const char* root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr) {
    WARN("skipped: XFORMER_TEST_DATA is not set");
    SUCCEED("skipped");
    return;
  }
  int64_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(root) / "imagenet_sample")) {
    if (entry.path().extension() != ".JPEG") continue;
    const MappedFile file(entry.path());
    const Image image = readers::decode_image(file.bytes(), entry.path().string());
    REQUIRE(static_cast<int64_t>(image.pixels.size()) == image.width * image.height * 3);
    ++count;
  }
  CHECK(count >= 500);
}

}  // namespace xformer::jpeg_test
