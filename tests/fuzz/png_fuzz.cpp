// libFuzzer target: any bytes either give an image of the size that they state or an xformer::Error, and an image that
// was read is written and read back unchanged. The first byte chooses grey or colour.
#include <cstdlib>
#include <span>
#include <string>

#include "core/error.h"
#include "readers/png.h"

namespace {

using namespace xformer::readers;

Image decode(std::string_view bytes, int64_t channels) {
  return decode_png(std::as_bytes(std::span(bytes.data(), bytes.size())), channels, "fuzzed input");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int64_t channels = data[0] % 2 == 0 ? 1 : 3;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  // A few hundred bytes may hold millions of pixels: true, and slow.
  constexpr int64_t kMostSide = 4096;
  if (input.size() >= 24 &&
      (input.substr(16, 2) != std::string_view("\0\0", 2) || input.substr(20, 2) != std::string_view("\0\0", 2)))
    return 0;
  Image image;
  try {
    image = decode(input, channels);
  } catch (const xformer::Error&) {
    return 0;
  }
  if (image.pixels.size() != static_cast<size_t>(image.width * image.height * channels)) std::abort();
  if (image.width > kMostSide || image.height > kMostSide) return 0;
  const Image back = decode(encode_png(image), channels);
  if (back.width != image.width || back.height != image.height || back.pixels != image.pixels) std::abort();
  return 0;
}
