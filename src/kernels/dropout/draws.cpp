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
#define XFORMER_AVX512 __attribute__((target("avx512f")))

constexpr int kRegister = 8;  // blocks
using Words = Vector<uint64_t, kRegister>::Lanes;

// into = words * factor, of the lower halves.
XFORMER_AVX512 inline void multiply(const Words& words, const Words& factor, Words& into) {
  into = (Words)_mm512_maskz_mul_epu32(0xFF, (__m512i)words, (__m512i)factor);
}

// `count` registers of blocks, so many that one's products hide behind the others'.
template <int count>
XFORMER_AVX512 inline void draw_registers(uint64_t key, uint64_t counter_high, uint64_t block, uint16_t* draws) {
  const Words none = {}, places = {0, 1, 2, 3, 4, 5, 6, 7}, first = none + kFirst, second = none + kSecond;
  Words c0[count], c1[count], c2[count], c3[count], product0, product1;
  for (int i = 0; i < count; ++i) {
    c0[i] = places + (block + static_cast<uint64_t>(i * kRegister));
    c1[i] = c0[i] >> 32;
    c2[i] = none + counter_high;
    c3[i] = none + (counter_high >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words key0 = none + k0, key1 = none + k1;
    for (int i = 0; i < count; ++i) {
      multiply(c0[i], first, product0);
      multiply(c2[i], second, product1);
      c0[i] = (product1 >> 32) ^ c1[i] ^ key0;
      c1[i] = product1;
      c2[i] = (product0 >> 32) ^ c3[i] ^ key1;
      c3[i] = product0;
    }
    k0 += kFirstKey;
    k1 += kSecondKey;
  }
  for (int i = 0; i < count; ++i) {
    const Words words01 = (c0[i] & 0xFFFFFFFFu) | (c1[i] << 32), words23 = (c2[i] & 0xFFFFFFFFu) | (c3[i] << 32);
    const Words front = __builtin_shufflevector(words01, words23, 0, 8, 1, 9, 2, 10, 3, 11);
    const Words back = __builtin_shufflevector(words01, words23, 4, 12, 5, 13, 6, 14, 7, 15);
    uint16_t* const into = draws + i * kRegister * kElementsPerBlock;
    std::memcpy(into, &front, sizeof(front));
    std::memcpy(into + 4 * kElementsPerBlock, &back, sizeof(back));
  }
}

XFORMER_AVX512 void draw_by_512(uint64_t key, uint64_t counter_high, uint64_t block, int64_t blocks, uint16_t* draws) {
  constexpr int kMany = 4;
  for (; blocks >= kMany * kRegister; blocks -= kMany * kRegister) {
    draw_registers<kMany>(key, counter_high, block, draws);
    block += kMany * kRegister;
    draws += kMany * kRegister * kElementsPerBlock;
  }
  for (; blocks > 0; blocks -= kRegister) {
    alignas(64) uint16_t last[kRegister * kElementsPerBlock];
    draw_registers<1>(key, counter_high, block, last);
    std::memcpy(draws, last, static_cast<size_t>(std::min<int64_t>(blocks, kRegister) * kBlockBytes));
    block += kRegister;
    draws += kRegister * kElementsPerBlock;
  }
}

bool has_512() {
  static const bool has = __builtin_cpu_supports("avx512f");
  return has;
}

#else
bool has_512() { return false; }
void draw_by_512(uint64_t, uint64_t, uint64_t, int64_t, uint16_t*) {}
#endif

}  // namespace

XFORMER_VECTORISED
void draw_blocks_plainly(uint64_t key, uint64_t counter_high, uint64_t first_block, int64_t blocks, uint16_t* draws) {
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

void draw_blocks(uint64_t key, uint64_t counter_high, uint64_t first_block, int64_t blocks, uint16_t* draws) {
  return (has_512() ? draw_by_512 : draw_blocks_plainly)(key, counter_high, first_block, blocks, draws);
}

}  // namespace xformer::kernels
