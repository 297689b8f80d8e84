#include "kernels/cpu/stream.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace xformer::kernels {

namespace {

#ifdef __SSE2__

constexpr size_t kLine = 64;          // bytes that such stores are joined to
constexpr size_t kWorthWhile = 4096;  // bytes; fewer stay in the cache

// The whole lines of a piece by line(offset), what lies before and behind them by rest(offset, bytes).
template <class Line, class Rest>
void in_lines(const void* to, size_t bytes, const Line& line, const Rest& rest) {
  const size_t before = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  rest(0, before);
  size_t at = before;
  for (; at + kLine <= bytes; at += kLine) line(at);
  _mm_sfence();  // before another thread is told
  rest(at, bytes - at);
}

#endif

}  // namespace

void stream_zeros(void* to, size_t bytes) {
#ifdef __SSE2__
  if (bytes >= kWorthWhile) {
    auto* const begin = static_cast<char*>(to);
    const auto line = [&](size_t at) {
      for (size_t i = 0; i < kLine; i += sizeof(__m128i))
        _mm_stream_si128(reinterpret_cast<__m128i*>(begin + at + i), _mm_setzero_si128());
    };
    return in_lines(to, bytes, line, [&](size_t at, size_t some) { std::memset(begin + at, 0, some); });
  }
#endif
  std::memset(to, 0, bytes);
}

void stream_copy(const void* from, void* to, size_t bytes) {
#ifdef __SSE2__
  if (bytes >= kWorthWhile) {
    const auto* const source = static_cast<const char*>(from);
    auto* const begin = static_cast<char*>(to);
    const auto line = [&](size_t at) {
      for (size_t i = 0; i < kLine; i += sizeof(__m128i))
        _mm_stream_si128(reinterpret_cast<__m128i*>(begin + at + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at + i)));
    };
    return in_lines(to, bytes, line, [&](size_t at, size_t some) { std::memcpy(begin + at, source + at, some); });
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace xformer::kernels
