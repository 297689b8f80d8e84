// libFuzzer target: any bytes either give a safetensors header or an xformer::Error, and a header that was
// read is written and read back unchanged.
#include <cstdlib>
#include <span>
#include <string>

#include "core/error.h"
#include "readers/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xformer::readers;
  const auto parse = [](const std::string& bytes) {
    return parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())), "fuzzed input");
  };
  const auto sized = [](std::string text, size_t data_bytes) {
    std::string length;
    for (int i = 0; i < 8; ++i) length += static_cast<char>((uint64_t{text.size()} >> (8 * i)) & 0xFF);
    return length + text + std::string(data_bytes, 'x');
  };
  const std::string input(reinterpret_cast<const char*>(data), size);
  // The second form spares the fuzzer the discovery of a length: a byte of data size, then the header.
  for (const bool framed : {true, false}) {
    if (!framed && size == 0) continue;
    SafetensorsHeader header;
    try {
      header = parse(framed ? input : sized(input.substr(1), data[0]));
    } catch (const xformer::Error&) {
      continue;
    }
    const size_t data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
    const SafetensorsHeader back = parse(write_safetensors_header(header) + std::string(data_bytes, 'x'));
    if (back.metadata != header.metadata || back.tensors.size() != header.tensors.size()) std::abort();
    for (size_t i = 0; i < back.tensors.size(); ++i)
      if (back.tensors[i].name != header.tensors[i].name || back.tensors[i].begin != header.tensors[i].begin ||
          back.tensors[i].shape != header.tensors[i].shape)
        std::abort();
  }
  return 0;
}
