// libFuzzer target: any bytes either are records of CIFAR-10 that put together give the bytes, or an xformer::Error.
#include <cstdlib>

#include "core/error.h"
#include "readers/cifar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xformer::readers::cifar;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string back;
  int64_t count = 0;
  try {
    count = read_binary_batch(input, "fuzzed input", [&](uint8_t label, std::span<const uint8_t, 3072> colours) {
      if (label >= kClasses) std::abort();
      back += static_cast<char>(label);
      back.append(reinterpret_cast<const char*>(colours.data()), colours.size());
    });
  } catch (const xformer::Error&) {
    return 0;
  }
  if (back != input || static_cast<size_t>(count) * kRecordBytes != size) std::abort();
  return 0;
}
