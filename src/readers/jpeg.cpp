#include "readers/jpeg.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <jerror.h>
#include <jpeglib.h>

#include "core/error.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {
namespace {

constexpr int kExif = JPEG_APP0 + 1;

// libjpeg reports by callbacks and leaves a failed call only by a jump: nothing with a destructor may live across it.
struct Reporter {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

Reporter& reporter_of(j_common_ptr image) { return *reinterpret_cast<Reporter*>(image->err); }

void fail(j_common_ptr image) {
  Reporter& reporter = reporter_of(image);
  reporter.manager.format_message(image, reporter.message);
  std::longjmp(reporter.back, 1);
}

// The end of the data in the middle of the picture is the only warning that counts: the rest of it would be grey.
void warn(j_common_ptr image, int level) {
  if (level < 0 && (image->err->msg_code == JWRN_JPEG_EOF || image->err->msg_code == JWRN_HIT_MARKER)) fail(image);
}

struct Decoder {
  jpeg_decompress_struct image;
  Reporter reporter;
};

// False where it failed; the message says why.
bool read_header(Decoder& decoder, const unsigned char* data, unsigned long size) {
  if (setjmp(decoder.reporter.back) != 0) return false;
  jpeg_mem_src(&decoder.image, data, size);
  jpeg_save_markers(&decoder.image, kExif, 0xFFFF);
  jpeg_read_header(&decoder.image, TRUE);
  return true;
}

bool read_pixels(Decoder& decoder, unsigned char* pixels, size_t row_bytes) {
  if (setjmp(decoder.reporter.back) != 0) return false;
  jpeg_start_decompress(&decoder.image);
  while (decoder.image.output_scanline < decoder.image.output_height) {
    unsigned char* row = pixels + decoder.image.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.image, &row, 1);
  }
  jpeg_finish_decompress(&decoder.image);
  return true;
}

// 1 to 8, as EXIF counts; 1, upright, where nothing sensible is said.
int orientation_of(const jpeg_decompress_struct& image) {
  for (const jpeg_marker_struct* marker = image.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->marker != kExif || marker->data_length < 14 || std::memcmp(marker->data, "Exif\0\0", 6) != 0) continue;
    const unsigned char* tiff = marker->data + 6;
    const size_t size = marker->data_length - 6;
    const bool big = tiff[0] == 'M';
    const auto number = [&](size_t at, size_t bytes) -> uint64_t {
      uint64_t value = 0;
      for (size_t i = 0; i < bytes; ++i) value |= uint64_t{tiff[at + i]} << (8 * (big ? bytes - 1 - i : i));
      return value;
    };
    const uint64_t first = number(4, 4);
    if (first > size || size - first < 2) return 1;
    const uint64_t count = number(first, 2);
    for (uint64_t i = 0; i < count && first + 2 + 12 * (i + 1) <= size; ++i) {
      const size_t entry = first + 2 + 12 * i;
      if (number(entry, 2) != 0x0112) continue;
      const uint64_t value = number(entry + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

// The picture that a camera held as `orientation` says meant.
Image upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool turned = orientation >= 5;
  Image result{turned ? image.height : image.width, turned ? image.width : image.height, image.channels, {}};
  result.pixels.resize(image.pixels.size());
  const int64_t w = image.width, h = image.height;
  for (int64_t row = 0; row < result.height; ++row)
    for (int64_t column = 0; column < result.width; ++column) {
      int64_t x = turned ? row : column, y = turned ? column : row;
      if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) x = w - 1 - x;
      if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) y = h - 1 - y;
      std::memcpy(&result.pixels[static_cast<size_t>((row * result.width + column) * image.channels)],
                  &image.pixels[static_cast<size_t>((y * w + x) * image.channels)],
                  static_cast<size_t>(image.channels));
    }
  return result;
}

// Adobe's programs store CMYK inverted and say so.
std::vector<uint8_t> without_black(const std::vector<uint8_t>& inks, bool inverted) {
  std::vector<uint8_t> colours;
  colours.reserve(inks.size() / 4 * 3);
  for (size_t at = 0; at < inks.size(); at += 4) {
    const int black = inverted ? inks[at + 3] : 255 - inks[at + 3];
    for (size_t i = 0; i < 3; ++i) {
      const int ink = inverted ? inks[at + i] : 255 - inks[at + i];
      colours.push_back(static_cast<uint8_t>((ink * black + 127) / 255));
    }
  }
  return colours;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> file, const std::string& origin) {
  XF_CHECK(!file.empty(), DataError, "{}: the file is empty; expected a JPEG image", origin);
  refuse_lfs_pointer(file, origin);
  Decoder decoder{};
  decoder.image.err = jpeg_std_error(&decoder.reporter.manager);
  decoder.reporter.manager.error_exit = fail;
  decoder.reporter.manager.emit_message = warn;
  jpeg_create_decompress(&decoder.image);
  struct Destroy {
    jpeg_decompress_struct& image;
    ~Destroy() { jpeg_destroy_decompress(&image); }
  } destroy{decoder.image};
  XF_CHECK(read_header(decoder, reinterpret_cast<const unsigned char*>(file.data()), file.size()), DataError,
           "{}: expected a JPEG image: {}", origin, decoder.reporter.message);
  const bool inks = decoder.image.jpeg_color_space == JCS_CMYK || decoder.image.jpeg_color_space == JCS_YCCK;
  decoder.image.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  Image image{decoder.image.image_width, decoder.image.image_height, inks ? 4 : 3, {}};
  XF_CHECK(image.width * image.height <= kMostPixels, DataError,
           "{}: the header claims {} x {} pixels, at most {} are read", origin, image.width, image.height, kMostPixels);
  const int orientation = orientation_of(decoder.image);  // gone when the pixels are read
  const auto row_bytes = static_cast<size_t>(image.width * image.channels);
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  XF_CHECK(read_pixels(decoder, image.pixels.data(), row_bytes), DataError, "{}: the JPEG image is damaged: {}", origin,
           decoder.reporter.message);
  if (inks) {
    image.pixels = without_black(image.pixels, decoder.image.saw_Adobe_marker != 0);
    image.channels = 3;
  }
  return upright(std::move(image), orientation);
}

Image decode_image(std::span<const std::byte> file, const std::string& origin) {
  constexpr std::string_view kPng = "\x89PNG";
  const std::string_view first(reinterpret_cast<const char*>(file.data()), std::min(file.size(), kPng.size()));
  return first == kPng ? decode_png(file, 3, origin) : decode_jpeg(file, origin);
}

}  // namespace xformer::readers
