#include "readers/wav.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "readers/lfs_pointer.h"

namespace xformer::readers {

namespace {

constexpr uint16_t kPcm = 1, kFloating = 3, kExtensible = 0xFFFE;
// What of a subformat's identifier follows its two bytes of format.
constexpr std::string_view kSubformat("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14);

uint64_t little_endian(std::string_view bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

std::string format_name(uint64_t format) {
  switch (format) {
    case 0x02:
    case 0x11:
      return "ADPCM";
    case 0x06:
      return "A-law";
    case 0x07:
      return "mu-law";
    case 0x31:
      return "GSM 6.10";
    case 0x50:
    case 0x55:
      return "MPEG";
    default:
      return fmt::format("the format {:#06x}", format);
  }
}

// What a file is that is no WAV, by its first bytes.
std::string kind_of_sound(std::string_view bytes) {
  if (bytes.starts_with("RIFX")) return "a WAV in the other byte order (RIFX)";
  if (bytes.starts_with("RF64")) return "a WAV of more than 4 GB (RF64)";
  if (bytes.starts_with("RIFF")) return "another RIFF file";
  if (bytes.starts_with("fLaC")) return "FLAC";
  if (bytes.starts_with("OggS")) return "Ogg";
  if (bytes.starts_with("ID3") || bytes.starts_with("\xff\xfb")) return "MP3";
  if (bytes.starts_with(".snd")) return "Sun audio";
  return "something else";
}

struct Format {
  uint64_t format = 0, channels = 0, rate = 0, block = 0, bits = 0;
};

Format parse_format(std::string_view chunk, const std::string& origin) {
  XF_CHECK(chunk.size() >= 16, DataError, "{}: its format is {} bytes long, expected 16 or more", origin, chunk.size());
  Format format{little_endian(chunk, 0, 2), little_endian(chunk, 2, 2), little_endian(chunk, 4, 4),
                little_endian(chunk, 12, 2), little_endian(chunk, 14, 2)};
  if (format.format == kExtensible) {
    XF_CHECK(chunk.size() >= 40 && chunk.substr(26, kSubformat.size()) == kSubformat, DataError,
             "{}: an extensible format without a known subformat", origin);
    format.format = little_endian(chunk, 24, 2);
  }
  XF_CHECK(format.format == kPcm || format.format == kFloating, DataError,
           "{}: expected PCM or floating point, found {}: `sox IN -e signed-integer OUT` makes PCM of it", origin,
           format_name(format.format));
  XF_CHECK(format.channels == 1, DataError,
           "{}: expected one channel, found {}: `sox IN OUT remix -` makes one of several", origin, format.channels);
  const bool known = format.format == kPcm
                         ? format.bits == 8 || format.bits == 16 || format.bits == 24 || format.bits == 32
                         : format.bits == 32 || format.bits == 64;
  XF_CHECK(known, DataError, "{}: expected {} bits, found {}", origin,
           format.format == kPcm ? "PCM of 8, 16, 24 or 32" : "floating point of 32 or 64", format.bits);
  XF_CHECK(format.block == format.bits / 8, DataError, "{}: a sample of {} bits in a block of {} bytes", origin,
           format.bits, format.block);
  XF_CHECK(format.rate > 0, DataError, "{}: a rate of 0 samples a second", origin);
  return format;
}

float sample_at(std::string_view data, size_t i, const Format& format) {
  const size_t bytes = format.bits / 8;
  const uint64_t raw = little_endian(data, i * bytes, bytes);
  if (format.format == kFloating)
    return bytes == 4 ? std::bit_cast<float>(static_cast<uint32_t>(raw))
                      : static_cast<float>(std::bit_cast<double>(raw));
  if (bytes == 1) return (static_cast<float>(raw) - 128) / 128;
  // The highest byte to the top, so that the sign is the number's.
  const auto whole = static_cast<int32_t>(static_cast<uint32_t>(raw << (32 - format.bits)));
  return static_cast<float>(static_cast<double>(whole) * 0x1p-31);
}

}  // namespace

Wav decode_wav(std::string_view bytes, const std::string& origin, size_t most) {
  refuse_lfs_pointer(bytes, origin);
  XF_CHECK(!bytes.empty(), DataError, "{} is empty: expected a WAV file", origin);
  XF_CHECK(bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WAVE", DataError,
           "{}: expected a WAV file, found {}", origin,
           bytes.size() < 12 ? fmt::format("{} bytes", bytes.size()) : kind_of_sound(bytes));
  Format format;
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const std::string_view name = bytes.substr(at, 4);
    const uint64_t size = little_endian(bytes, at + 4, 4), there = bytes.size() - at - 8;
    XF_CHECK(size <= there, DataError, "{} is cut off: its part {} has {} bytes, of which {} are there", origin,
             quoted(name), size, there);
    const std::string_view chunk = bytes.substr(at + 8, size);
    if (name == "fmt " && format.rate == 0) format = parse_format(chunk, origin);
    if (name == "data") {
      XF_CHECK(format.rate > 0, DataError, "{}: samples in front of their format", origin);
      XF_CHECK(size > 0, DataError, "{}: expected samples, found none", origin);
      XF_CHECK(size % format.block == 0, DataError, "{}: {} bytes are no whole number of samples of {}", origin, size,
               format.block);
      Wav wav{static_cast<int64_t>(format.rate),
              static_cast<int64_t>(format.bits),
              format.format == kFloating,
              static_cast<int64_t>(size / format.block),
              {}};
      wav.samples.resize(std::min<uint64_t>(most, size / format.block));
      for (size_t i = 0; i < wav.samples.size(); ++i) {
        wav.samples[i] = sample_at(chunk, i, format);
        XF_CHECK(std::isfinite(wav.samples[i]), DataError, "{}: sample {} is not finite", origin, i);
      }
      return wav;
    }
    at += 8 + size + size % 2;  // parts begin at even places
  }
  throw DataError(fmt::format("{}: expected samples, found no part 'data'", origin));
}

Wav read_wav(const Path& path, size_t most) {
  const MappedFile file(path);
  return decode_wav({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string(), most);
}

}  // namespace xformer::readers
