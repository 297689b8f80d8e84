// A long stream read in windows: which places each has, and which of them count, so that every place of the stream
// counts exactly once whatever context it is given.
#pragma once

#include <cstdint>

namespace xformer::data {

struct StreamWindow {
  int64_t begin = 0, length = 0;  // places of the stream
  int64_t counted_from = 0;       // of these; what stands before is context
};

// Window k begins at place k * stride and has `length` places, or what is left of `size`. The first counts whole, of
// every other the last `stride` places, as those before them were counted in earlier windows: with stride = length
// there is no context but the window's own, else length - stride places at least.
class StreamWindows {
 public:
  // 1 <= stride <= length.
  StreamWindows(int64_t size, int64_t length, int64_t stride);
  [[nodiscard]] int64_t count() const;  // 0 of an empty stream
  [[nodiscard]] StreamWindow at(int64_t index) const;

 private:
  int64_t size_, length_, stride_;
};

}  // namespace xformer::data
