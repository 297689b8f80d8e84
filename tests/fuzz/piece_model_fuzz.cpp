// libFuzzer target: any bytes either are a model with pieces of its own, one of them unknown, or an xformer::Error.
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "readers/piece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto facts =
        xformer::readers::look_through_piece_model({reinterpret_cast<const char*>(data), size}, "fuzzed");
    if (facts.unknown != 1 || facts.pieces < 1 + facts.control + facts.bytes) std::abort();
  } catch (const xformer::Error&) {
    return 0;
  }
  return 0;
}
