// Sound in WAV files (Microsoft and IBM, "Multimedia Programming Interface and Data Specifications 1.0", 1991; the
// extensible form of 2001): one channel of PCM in 8, 16, 24 or 32 bits, or of floating point in 32 or 64.
//
// Whole numbers become x / 2^(bits - 1), those of 8 bits, which lie around 128, (x - 128) / 128. Nothing is resampled.
// Errors are DataErrors that name the file: another kind of file, compressed samples, several channels, widths and
// blocks that contradict each other, fewer bytes than a chunk says, no sample, a number that is not finite.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace xformer::readers {

struct Wav {
  int64_t rate = 0;  // samples a second
  int64_t bits = 0;
  bool floating = false;
  int64_t length = 0;          // samples in the file
  std::vector<float> samples;  // the first of them
};

// Of the samples at most `most` are decoded. `origin` is the file's name for messages.
[[nodiscard]] Wav decode_wav(std::string_view bytes, const std::string& origin, size_t most);
[[nodiscard]] Wav read_wav(const Path& path, size_t most);

}  // namespace xformer::readers
