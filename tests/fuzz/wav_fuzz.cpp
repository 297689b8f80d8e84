// libFuzzer target: any bytes either give finite samples, no more than asked for, or an xformer::Error, and samples
// that were read are written as floating point and read back unchanged. The first byte chooses how many are asked for.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "readers/wav.h"

namespace {

using namespace xformer::readers;

template <class T>
void put(std::string& text, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);  // little-endian, as the machines are that this runs on
  text.append(bytes, sizeof value);
}

std::string written(const Wav& wav) {
  const auto bytes = static_cast<uint32_t>(4 * wav.samples.size());
  std::string text = "RIFF";
  put(text, uint32_t{36 + bytes});
  text += "WAVEfmt ";
  put(text, uint32_t{16}), put(text, uint16_t{3}), put(text, uint16_t{1}), put(text, static_cast<uint32_t>(wav.rate));
  put(text, static_cast<uint32_t>(4 * wav.rate)), put(text, uint16_t{4}), put(text, uint16_t{32});
  text += "data";
  put(text, bytes);
  for (const float sample : wav.samples) put(text, sample);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t most = data[0] < 128 ? size_t{1} << 30 : data[0] % 16;
  Wav wav;
  try {
    wav = decode_wav({reinterpret_cast<const char*>(data) + 1, size - 1}, "fuzzed input", most);
  } catch (const xformer::Error&) {
    return 0;
  }
  if (wav.rate < 1 || wav.length < 1 || wav.samples.size() != std::min<size_t>(most, static_cast<size_t>(wav.length)))
    std::abort();
  for (const float sample : wav.samples)
    if (!std::isfinite(sample) || (!wav.floating && std::abs(sample) > 1)) std::abort();
  if (wav.samples.empty()) return 0;
  const Wav back = decode_wav(written(wav), "written input", most);
  if (back.samples != wav.samples || back.rate != wav.rate || !back.floating) std::abort();
  return 0;
}
