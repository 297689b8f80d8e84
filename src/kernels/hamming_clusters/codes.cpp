#include "kernels/cpu/vectorised.h"
#include "kernels/hamming_clusters/cpu.h"

#ifdef XFORMER_TAKES_512
#include <immintrin.h>
#define XFORMER_COUNTS_BY_512 __attribute__((target("avx512f,avx512vpopcntdq")))
#endif

namespace xformer::kernels {

namespace {

using Codes = Vector<uint64_t, 8>::Lanes;
using Ranks = Vector<int64_t, 8>::Lanes;
constexpr int64_t kSteps = kCodeLanes / 8;

// Bits that are set, lane by lane: sums of 2, 4 and 8 neighbouring bits, then of bytes. Most instruction sets count
// bits one register of 64 at a time only.
[[gnu::always_inline]] inline void count_bits(Codes& x) {
  x -= (x >> 1) & 0x5555555555555555U;
  x = (x & 0x3333333333333333U) + ((x >> 2) & 0x3333333333333333U);
  x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fU;
  x += x >> 8;
  x += x >> 16;
  x += x >> 32;
  x &= 0x7fU;
}

#ifdef XFORMER_COUNTS_BY_512

bool counts_by_512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vpopcntdq");
  return has;
}

// As nearest_codes_plainly(), of which only the counting is different.
XFORMER_COUNTS_BY_512 void nearest_by_512(const uint64_t* codes, int64_t count, const uint64_t* centroids,
                                          int64_t clusters, int64_t* nearest) {
  for (int64_t first = 0; first < count; first += kCodeLanes) {
    __m512i own[kSteps], least[kSteps];
    for (int64_t k = 0; k < kSteps; ++k) {
      own[k] = _mm512_loadu_si512(codes + first + 8 * k);
      least[k] = _mm512_set1_epi64(INT64_MAX);
    }
    for (int64_t c = 0; c < clusters; ++c) {
      const __m512i centroid = _mm512_set1_epi64(static_cast<int64_t>(centroids[c])), number = _mm512_set1_epi64(c);
      for (int64_t k = 0; k < kSteps; ++k) {
        const __m512i distance = _mm512_popcnt_epi64(_mm512_xor_si512(own[k], centroid));
        least[k] = _mm512_min_epi64(least[k], _mm512_or_si512(_mm512_slli_epi64(distance, 32), number));
      }
    }
    for (int64_t k = 0; k < kSteps; ++k)
      _mm512_storeu_si512(nearest + first + 8 * k, _mm512_and_si512(least[k], _mm512_set1_epi64(0xffffffff)));
  }
}

// A code's bits are the mask of what is added to.
XFORMER_COUNTS_BY_512 void count_by_512(const uint64_t* codes, const int64_t* clusters, int64_t count, int32_t* ones,
                                        int64_t* members) {
  constexpr int64_t kNumbers = 16;  // of a register
  const __m512i one = _mm512_set1_epi32(1);
  for (int64_t i = 0; i < count; ++i) {
    int32_t* const counts = ones + clusters[i] * kCodeBits;
    for (int64_t bit = 0; bit < kCodeBits; bit += kNumbers) {
      const __m512i before = _mm512_loadu_si512(counts + bit);
      const auto set = static_cast<__mmask16>(codes[i] >> bit);
      _mm512_storeu_si512(counts + bit, _mm512_mask_add_epi32(before, set, before, one));
    }
    ++members[clusters[i]];
  }
}

#else

bool counts_by_512() { return false; }
constexpr auto nearest_by_512 = nearest_codes_plainly;
constexpr auto count_by_512 = count_ones_plainly;

#endif

}  // namespace

XFORMER_VECTORISED
void nearest_codes_plainly(const uint64_t* codes, int64_t count, const uint64_t* centroids, int64_t clusters,
                           int64_t* nearest) {
  for (int64_t first = 0; first < count; first += kCodeLanes) {
    Codes own[kSteps];
    Ranks least[kSteps];  // distance and number of the nearest so far, as one number: the first of equals is the least
    for (int64_t k = 0; k < kSteps; ++k) {
      load(codes + first + 8 * k, own[k]);
      least[k] = Ranks{} + INT64_MAX;
    }
    for (int64_t c = 0; c < clusters; ++c)
      for (int64_t k = 0; k < kSteps; ++k) {
        Codes differ = own[k] ^ centroids[c];
        count_bits(differ);
        const Ranks rank = reinterpret_cast<Ranks>(differ << 32) + c;
        least[k] = rank < least[k] ? rank : least[k];
      }
    for (int64_t k = 0; k < kSteps; ++k) {
      const Ranks numbers = least[k] & 0xffffffff;
      store(numbers, nearest + first + 8 * k);
    }
  }
}

XFORMER_VECTORISED
void count_ones_plainly(const uint64_t* codes, const int64_t* clusters, int64_t count, int32_t* ones,
                        int64_t* members) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t code = codes[i];
    int32_t* const counts = ones + clusters[i] * kCodeBits;
    for (int64_t bit = 0; bit < kCodeBits; ++bit) counts[bit] += static_cast<int32_t>(code >> bit & 1U);
    ++members[clusters[i]];
  }
}

void nearest_codes(const uint64_t* codes, int64_t count, const uint64_t* centroids, int64_t clusters,
                   int64_t* nearest) {
  (counts_by_512() ? nearest_by_512 : nearest_codes_plainly)(codes, count, centroids, clusters, nearest);
}

void count_ones(const uint64_t* codes, const int64_t* clusters, int64_t count, int32_t* ones, int64_t* members) {
  (counts_by_512() ? count_by_512 : count_ones_plainly)(codes, clusters, count, ones, members);
}

}  // namespace xformer::kernels
