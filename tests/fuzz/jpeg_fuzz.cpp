// libFuzzer target: any bytes either give a colour image of the size that they state or an xformer::Error.
#include <cstdlib>
#include <span>
#include <string_view>

#include "core/error.h"
#include "readers/jpeg.h"

namespace {

// A few hundred bytes may state millions of pixels: true, and slow.
bool states_a_large_image(std::string_view file) {
  constexpr unsigned kMostSide = 1024;
  for (size_t at = 0; at + 8 < file.size(); ++at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(file[at + i]); };
    const bool frame = byte(0) == 0xFF && byte(1) >= 0xC0 && byte(1) <= 0xCF;
    if (frame && (byte(5) * 256U + byte(6) > kMostSide || byte(7) * 256U + byte(8) > kMostSide)) return true;
  }
  return file.substr(0, 4) == "\x89PNG";  // has a target of its own
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  if (states_a_large_image(file)) return 0;
  xformer::readers::Image image;
  try {
    image = xformer::readers::decode_image(std::as_bytes(std::span(file.data(), file.size())), "fuzzed input");
  } catch (const xformer::Error&) {
    return 0;
  }
  if (image.channels != 3 || image.pixels.size() != static_cast<size_t>(image.width * image.height * 3)) std::abort();
  return 0;
}
