// What dropout keeps, from draws to bits and back, 32 elements at a time and the last by eight. No store has a mask:
// what is stored is read at once, and a read waits until a store with a mask is done.
#include <cstring>

#include "kernels/cpu/lanes_512.h"
#include "kernels/dropout/cpu.h"

namespace xformer::kernels {

#ifdef XFORMER_BY_512

namespace {

constexpr int64_t kBitsAtOnce = 32;

}  // namespace

XFORMER_BY_512 void kept_bits_by_512(const uint16_t* draws, int64_t count, uint32_t threshold, uint8_t* kept) {
  const __m512i least = _mm512_set1_epi16(static_cast<int16_t>(threshold));
  int64_t i = 0;
  for (; i + kBitsAtOnce <= count; i += kBitsAtOnce) {
    const __mmask32 bits = _mm512_cmpge_epu16_mask(_mm512_loadu_si512(draws + i), least);
    std::memcpy(kept + i / kBitsPerByte, &bits, sizeof(bits));
  }
  for (; i < count; i += kBitsPerByte)
    kept[i / kBitsPerByte] = _mm_cmpge_epu16_mask(_mm_loadu_si128(reinterpret_cast<const __m128i*>(draws + i)),
                                                  _mm512_castsi512_si128(least));
}

XFORMER_BY_512 void draws_of_bits_by_512(const uint8_t* kept, int64_t count, uint16_t* draws) {
  int64_t i = 0;
  for (; i + kBitsAtOnce <= count; i += kBitsAtOnce) {
    __mmask32 bits = 0;
    std::memcpy(&bits, kept + i / kBitsPerByte, sizeof(bits));
    _mm512_storeu_si512(draws + i, _mm512_movm_epi16(bits));
  }
  for (; i < count; i += kBitsPerByte)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(draws + i), _mm_movm_epi16(kept[i / kBitsPerByte]));
}

#else

// For the linker: nothing is remembered here.
void kept_bits_by_512(const uint16_t*, int64_t, uint32_t, uint8_t*) {}
void draws_of_bits_by_512(const uint8_t*, int64_t, uint16_t*) {}

#endif

}  // namespace xformer::kernels
