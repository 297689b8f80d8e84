// WAV files for tests, part by part.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace xformer::scratch {

inline std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

struct WavStyle {
  uint64_t format = 1, channels = 1, rate = 16000, bits = 16;
  bool extensible = false;
};

inline std::string wav_part(const std::string& name, const std::string& content) {
  return name + little_endian(content.size(), 4) + content + std::string(content.size() % 2, '\0');
}

inline std::string wav_format(const WavStyle& style) {
  const uint64_t block = style.channels * style.bits / 8;
  std::string text = little_endian(style.extensible ? 0xFFFE : style.format, 2) + little_endian(style.channels, 2) +
                     little_endian(style.rate, 4) + little_endian(style.rate * block, 4) + little_endian(block, 2) +
                     little_endian(style.bits, 2);
  if (style.extensible)
    text += little_endian(22, 2) + little_endian(style.bits, 2) + little_endian(4, 4) + little_endian(style.format, 2) +
            std::string("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14);
  return wav_part("fmt ", text);
}

// `data`: the samples' bytes.
inline std::string wav_file(const WavStyle& style, const std::string& data, const std::string& between = "") {
  const std::string parts = "WAVE" + wav_format(style) + between + wav_part("data", data);
  return "RIFF" + little_endian(parts.size(), 4) + parts;
}

// Whole numbers of 16 bits.
inline std::string wav_of(const std::vector<int>& samples, uint64_t rate = 16000) {
  std::string data;
  for (const int sample : samples) data += little_endian(static_cast<uint64_t>(static_cast<int64_t>(sample)), 2);
  return wav_file({.rate = rate}, data);
}

}  // namespace xformer::scratch
