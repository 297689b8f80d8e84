// What is written past the caches: every byte that is asked for, wherever a piece begins and ends, and none beside it.
#include "kernels/cpu/stream.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace xformer::kernels {

TEST_CASE("zeros and copies past the caches are those of memset and memcpy, and touch nothing beside them") {
  std::vector<uint8_t> from(70000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 131 % 251 + 1);
  for (const size_t bytes : {0, 1, 63, 64, 4095, 4096, 4097, 4159, 8192, 65536 + 37})
    for (const size_t begin : {0, 1, 16, 40, 63, 64, 100})
      for (const size_t source : {0, 3, 64}) {
        std::vector<uint8_t> zeros(from.size(), 255), copied = zeros, meant_zeros = zeros, meant = zeros;
        std::fill_n(meant_zeros.begin() + static_cast<int64_t>(begin), bytes, uint8_t{0});
        std::copy_n(from.begin() + static_cast<int64_t>(source), bytes, meant.begin() + static_cast<int64_t>(begin));
        stream_zeros(zeros.data() + begin, bytes);
        stream_copy(from.data() + source, copied.data() + begin, bytes);
        INFO(bytes << " bytes from " << begin);
        CHECK(zeros == meant_zeros);
        CHECK(copied == meant);
      }
}

}  // namespace xformer::kernels
