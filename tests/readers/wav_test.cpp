// WAV files of every width that is read, with parts between; and what is refused.
#include "readers/wav.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "scratch.h"
#include "wav_maker.h"

namespace xformer::wav_test {

using Catch::Matchers::Contains;
using namespace scratch;

namespace {

constexpr size_t kAll = 1'000'000;

std::vector<float> samples_of(const WavStyle& style, const std::string& data) {
  const readers::Wav wav = readers::decode_wav(wav_file(style, data), "some.wav", kAll);
  CHECK((wav.bits == static_cast<int64_t>(style.bits) && wav.floating == (style.format == 3)));
  return wav.samples;
}

std::string refusal(const std::string& bytes) {
  return message_of<DataError>([&] { (void)readers::decode_wav(bytes, "some.wav", kAll); });
}

template <class T>
std::string bytes_of(T number) {
  if constexpr (sizeof number == 4) return little_endian(std::bit_cast<uint32_t>(number), 4);
  else return little_endian(std::bit_cast<uint64_t>(number), 8);
}

}  // namespace

TEST_CASE("samples of every width, by their definition", "[wav]") {
  const auto whole = [](std::vector<int64_t> numbers, int bytes) {
    std::string text;
    for (const int64_t number : numbers) text += little_endian(static_cast<uint64_t>(number), bytes);
    return text;
  };
  for (const bool extensible : {false, true}) {
    CHECK(samples_of({.bits = 8, .extensible = extensible}, std::string("\x00\x40\x80\xff", 4)) ==
          std::vector<float>{-1, -0.5F, 0, 127.0F / 128});
    CHECK(samples_of({.bits = 16, .extensible = extensible}, whole({-32768, -1, 0, 16384, 32767}, 2)) ==
          std::vector<float>{-1, -1.0F / 32768, 0, 0.5F, 32767.0F / 32768});
    CHECK(samples_of({.bits = 24, .extensible = extensible}, whole({-8388608, -1, 4194304, 8388607}, 3)) ==
          std::vector<float>{-1, -1.0F / 8388608, 0.5F, 8388607.0F / 8388608});
    CHECK(samples_of({.bits = 32, .extensible = extensible}, whole({-2147483648, 1073741824, 1 << 20}, 4)) ==
          std::vector<float>{-1, 0.5F, 1.0F / 2048});
    CHECK(samples_of({.format = 3, .bits = 32, .extensible = extensible}, bytes_of(0.25F) + bytes_of(-1.5F)) ==
          std::vector<float>{0.25F, -1.5F});
    CHECK(samples_of({.format = 3, .bits = 64, .extensible = extensible}, bytes_of(0.1) + bytes_of(-3.0)) ==
          std::vector<float>{0.1F, -3});
  }
}

TEST_CASE("rate, length, and only as many samples as are asked for; other parts are passed over", "[wav]") {
  const Folder folder;
  const std::string between = wav_part("LIST", "odd") + wav_part("fact", std::string(4, '\0'));
  const Path path =
      put(folder / "some.wav",
          wav_file({.rate = 8000}, std::string("\x00\x40\x00\xc0\x00\x20", 6), between) + wav_part("id3 ", "behind"));
  const readers::Wav wav = readers::read_wav(path, 2);
  CHECK((wav.rate == 8000 && wav.length == 3 && wav.samples == std::vector<float>{0.5F, -0.5F}));
  CHECK(readers::read_wav(path, 9).samples.size() == 3);
}

TEST_CASE("what is no WAV of one channel is told for what it is", "[wav]") {
  const std::string data(8, '\x01'), good = wav_file({}, data);
  CHECK_THAT(refusal(""), Contains("is empty"));
  CHECK_THAT(refusal("RIFF"), Contains("expected a WAV file, found 4 bytes"));
  CHECK_THAT(refusal("fLaC" + std::string(20, '\0')), Contains("found FLAC"));
  CHECK_THAT(refusal("RIFX" + good.substr(4)), Contains("other byte order"));
  CHECK_THAT(refusal("RF64" + good.substr(4)), Contains("more than 4 GB"));
  CHECK_THAT(refusal("RIFF" + little_endian(4, 4) + "AVI LIST"), Contains("another RIFF file"));
  CHECK_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"), Contains("git lfs pull"));
  CHECK_THAT(refusal(wav_file({.channels = 2}, data)), Contains("expected one channel, found 2"));
  CHECK_THAT(refusal(wav_file({.format = 7, .bits = 8}, data)), Contains("found mu-law"));
  CHECK_THAT(refusal(wav_file({.format = 0x1234}, data)), Contains("found the format 0x1234"));
  CHECK_THAT(refusal(wav_file({.bits = 12}, data)), Contains("expected PCM of 8, 16, 24 or 32 bits, found 12"));
  CHECK_THAT(refusal(wav_file({.format = 3, .bits = 16}, data)), Contains("floating point of 32 or 64 bits, found 16"));
  CHECK_THAT(refusal(wav_file({.rate = 0}, data)), Contains("rate of 0"));
  CHECK_THAT(refusal(good.substr(0, good.size() - 3)), Contains("is cut off: its part 'data' has 8 bytes, of which 5"));
  CHECK_THAT(refusal(good.substr(0, 20)), Contains("is cut off: its part 'fmt ' has 16 bytes, of which 0"));
  CHECK_THAT(refusal(wav_file({}, "")), Contains("expected samples, found none"));
  CHECK_THAT(refusal(wav_file({}, "abc")), Contains("3 bytes are no whole number of samples of 2"));
  const std::string parts = "WAVE" + wav_format({});
  CHECK_THAT(refusal("RIFF" + little_endian(parts.size(), 4) + parts), Contains("found no part 'data'"));
  CHECK_THAT(refusal("RIFF" + little_endian(20, 4) + "WAVE" + wav_part("data", data)),
             Contains("in front of their format"));
  CHECK_THAT(refusal("RIFF" + little_endian(20, 4) + "WAVE" + wav_part("fmt ", "abcd") + wav_part("data", data)),
             Contains("4 bytes long"));
  CHECK_THAT(
      refusal(wav_file({.format = 3, .bits = 32}, bytes_of(1.0F) + bytes_of(std::numeric_limits<float>::infinity()))),
      Contains("sample 1 is not finite"));
  // The block contradicts the width.
  std::string odd = good;
  odd[32] = 3;
  CHECK_THAT(refusal(odd), Contains("16 bits in a block of 3 bytes"));
}

}  // namespace xformer::wav_test
