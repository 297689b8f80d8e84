// libFuzzer target: any bytes either are a Python batch of CIFAR-10 or give an xformer::Error, and images that were
// read are written in both Pythons' ways and read back unchanged.
#include <cstdlib>

#include "../cifar_batches.h"
#include "core/error.h"
#include "readers/cifar.h"

namespace {

using xformer::scratch::CifarImage;

std::vector<CifarImage> images_of(const std::string& bytes) {
  using namespace xformer::readers::cifar;
  std::vector<CifarImage> images;
  read_python_batch(bytes, "fuzzed input", [&](uint8_t label, std::span<const uint8_t, 3072> colours) {
    if (label >= kClasses) std::abort();
    images.push_back({label, std::string(reinterpret_cast<const char*>(colours.data()), colours.size())});
  });
  return images;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string input(reinterpret_cast<const char*>(data), size);
  // "@@" stands for the bytes of an image, which need not be mutated.
  if (const size_t at = input.find("@@"); at != std::string::npos) input.replace(at, 2, std::string(3072, 'x'));
  std::vector<CifarImage> images;
  try {
    images = images_of(input);
  } catch (const xformer::Error&) {
    return 0;
  }
  for (const bool python3 : {false, true}) {
    const auto back = images_of(xformer::scratch::python_batch(images, {python3, !python3, python3, false, python3}));
    if (back.size() != images.size()) std::abort();
    for (size_t i = 0; i < back.size(); ++i)
      if (back[i].label != images[i].label || back[i].colours != images[i].colours) std::abort();
  }
  return 0;
}
