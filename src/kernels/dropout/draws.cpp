// The draws of dropout: Philox 4x32-10 for many blocks side by side. Counters and keys are those of core/random.h.
#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cpu/vectorised.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace xformer::kernels {

namespace {

static_assert(std::endian::native == std::endian::little, "the lower half of a word is the first of its two draws");

constexpr int64_t kBlockBytes = kElementsPerBlock * int64_t{sizeof(uint16_t)};
constexpr uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;        // factors
constexpr uint32_t kFirstKey = 0x9E3779B9u, kSecondKey = 0xBB67AE85u;  // what keys gain each round

// Philox blocks side by side. g++ unrolls shorter loops before it vectorises them, which costs a factor of
// five.
constexpr int64_t kLanes = 32;

#if defined(__x86_64__) && defined(__GNUC__)

// By hand, because g++ makes products of 64 bits of what are products of 32, which take three times as long. A word
// lies in the lower half of 64 bits; what is above it is never looked at.
#ifdef XFORMER_TAKES_512

namespace by_512 {

#define XFORMER_DRAWS __attribute__((target("avx512f")))
constexpr int kRegister = 8, kMany = 4;
using Words = Vector<uint64_t, kRegister>::Lanes;
constexpr Words kPlaces = {0, 1, 2, 3, 4, 5, 6, 7};
XFORMER_DRAWS inline void multiply(const Words& words, const Words& factor, Words& into) {
  into = (Words)_mm512_maskz_mul_epu32(0xFF, (__m512i)words, (__m512i)factor);
}
XFORMER_DRAWS inline Words differ(const Words& a, const Words& b, const Words& c) {
  return (Words)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, /*a ^ b ^ c*/ 0x96);
}
XFORMER_DRAWS inline void interleave(const Words& a, const Words& b, Words& front, Words& back) {
  front = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  back = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#include "kernels/dropout/draw_registers.inc"
#undef XFORMER_DRAWS

}  // namespace by_512

#endif

namespace by_256 {

#define XFORMER_DRAWS __attribute__((target("avx2")))
constexpr int kRegister = 4, kMany = 3;
using Words = Vector<uint64_t, kRegister>::Lanes;
constexpr Words kPlaces = {0, 1, 2, 3};
XFORMER_DRAWS inline void multiply(const Words& words, const Words& factor, Words& into) {
  into = (Words)_mm256_mul_epu32((__m256i)words, (__m256i)factor);
}
XFORMER_DRAWS inline Words differ(const Words& a, const Words& b, const Words& c) { return a ^ b ^ c; }
XFORMER_DRAWS inline void interleave(const Words& a, const Words& b, Words& front, Words& back) {
  front = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  back = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
#include "kernels/dropout/draw_registers.inc"
#undef XFORMER_DRAWS

}  // namespace by_256

#endif

// For processors without AVX2.
void draw_plainly(uint64_t key, uint64_t counter_high, uint64_t first_block, int64_t blocks, uint16_t* draws) {
  for (int64_t start = 0; start < blocks; start += kLanes) {
    // Word-major: c0[i] .. c3[i] are the four words of block start + i.
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint64_t block = first_block + static_cast<uint64_t>(start + i);
      c0[i] = static_cast<uint32_t>(block);
      c1[i] = static_cast<uint32_t>(block >> 32);
      c2[i] = static_cast<uint32_t>(counter_high);
      c3[i] = static_cast<uint32_t>(counter_high >> 32);
    }
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      // High and low halves of the products in loops of their own: that is the form g++ 12 vectorises.
      uint32_t high0[kLanes], low0[kLanes], high1[kLanes], low1[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) high0[i] = static_cast<uint32_t>((uint64_t{c0[i]} * kFirst) >> 32);
      for (int64_t i = 0; i < kLanes; ++i) low0[i] = c0[i] * kFirst;
      for (int64_t i = 0; i < kLanes; ++i) high1[i] = static_cast<uint32_t>((uint64_t{c2[i]} * kSecond) >> 32);
      for (int64_t i = 0; i < kLanes; ++i) low1[i] = c2[i] * kSecond;
      for (int64_t i = 0; i < kLanes; ++i) c0[i] = high1[i] ^ c1[i] ^ k0;
      for (int64_t i = 0; i < kLanes; ++i) c1[i] = low1[i];
      for (int64_t i = 0; i < kLanes; ++i) c2[i] = high0[i] ^ c3[i] ^ k1;
      for (int64_t i = 0; i < kLanes; ++i) c3[i] = low0[i];
      k0 += kFirstKey;
      k1 += kSecondKey;
    }
    uint32_t words[4 * kLanes];  // block-major
    for (int64_t i = 0; i < kLanes; ++i) {
      words[4 * i] = c0[i];
      words[4 * i + 1] = c1[i];
      words[4 * i + 2] = c2[i];
      words[4 * i + 3] = c3[i];
    }
    uint16_t* const into = draws + start * kElementsPerBlock;
    if (blocks - start >= kLanes) std::memcpy(into, words, sizeof(words));
    else std::memcpy(into, words, static_cast<size_t>((blocks - start) * kBlockBytes));
  }
}

void draw_some_plainly(uint64_t key, uint64_t counter_high, const uint64_t* blocks, uint16_t* draws) {
  for (int64_t i = 0; i < kSomeBlocks; ++i)
    draw_plainly(key, counter_high, blocks[i], 1, draws + i * kElementsPerBlock);
}

}  // namespace

std::vector<DrawLoops> ways_to_draw() {
  std::vector<DrawLoops> ways;
#if defined(__x86_64__) && defined(__GNUC__)
#ifdef XFORMER_TAKES_512
  if (__builtin_cpu_supports("avx512f")) ways.push_back({by_512::draw, by_512::draw_some});
#endif
  if (__builtin_cpu_supports("avx2")) ways.push_back({by_256::draw, by_256::draw_some});
#endif
  ways.push_back({draw_plainly, draw_some_plainly});
  return ways;
}

namespace {

const DrawLoops& draw_loops() {
  static const DrawLoops widest = ways_to_draw().front();
  return widest;
}

}  // namespace

void draw_blocks(uint64_t key, uint64_t counter_high, uint64_t first_block, int64_t blocks, uint16_t* draws) {
  draw_loops().blocks(key, counter_high, first_block, blocks, draws);
}

void draw_some_blocks(uint64_t key, uint64_t counter_high, const uint64_t* blocks, uint16_t* draws) {
  draw_loops().some(key, counter_high, blocks, draws);
}

}  // namespace xformer::kernels
