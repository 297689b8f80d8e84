#include "readers/png.h"

#include <png.h>

#include "core/error.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {
namespace {

// libpng's simplified interface: no callbacks, errors as text.
struct Handle {
  png_image image{};
  Handle() { image.version = PNG_IMAGE_VERSION; }
  ~Handle() { png_image_free(&image); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  // A warning (an odd chunk, a text too long) is no reason to refuse an image.
  [[nodiscard]] bool failed() const { return PNG_IMAGE_FAILED(image); }
};

}  // namespace

Image decode_png(std::span<const std::byte> file, int64_t channels, const std::string& origin) {
  XF_ASSERT(channels == 1 || channels == 3, "{} channels", channels);
  Handle handle;
  png_image& image = handle.image;
  XF_CHECK(!file.empty(), DataError, "{}: the file is empty; expected a PNG image", origin);
  refuse_lfs_pointer(file, origin);
  static_cast<void>(png_image_begin_read_from_memory(&image, file.data(), file.size()));
  XF_CHECK(!handle.failed(), DataError, "{}: expected a PNG image: {}", origin, image.message);
  XF_CHECK(int64_t{image.width} * int64_t{image.height} <= kMostPixels, DataError,
           "{}: the header claims {} x {} pixels, at most {} are read", origin, image.width, image.height, kMostPixels);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Image result{image.width, image.height, channels, std::vector<uint8_t>(PNG_IMAGE_SIZE(image))};
  const png_color black{0, 0, 0};
  static_cast<void>(png_image_finish_read(&image, &black, result.pixels.data(), 0, nullptr));
  XF_CHECK(!handle.failed(), DataError, "{}: the PNG image is damaged: {}", origin, image.message);
  return result;
}

std::string encode_png(const Image& image) {
  Handle handle;
  handle.image.width = static_cast<png_uint_32>(image.width);
  handle.image.height = static_cast<png_uint_32>(image.height);
  handle.image.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = 0;
  const auto write = [&](void* to) {
    return png_image_write_to_memory(&handle.image, to, &bytes, 0, image.pixels.data(), 0, nullptr);
  };
  XF_ASSERT(write(nullptr) != 0, "{}", handle.image.message);
  std::string result(bytes, '\0');
  XF_ASSERT(write(result.data()) != 0, "{}", handle.image.message);
  result.resize(bytes);
  return result;
}

}  // namespace xformer::readers
