#include "kernels/hamming_clusters/cpu.h"

#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

using Codes = Vector<uint64_t, 8>::Lanes;
using Ranks = Vector<int64_t, 8>::Lanes;

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

}  // namespace

XFORMER_VECTORISED
void nearest_codes(const uint64_t* codes, int64_t count, const uint64_t* centroids, int64_t clusters,
                   int64_t* nearest) {
  constexpr int64_t kSteps = kCodeLanes / 8;
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
void count_ones(const uint64_t* codes, const int64_t* clusters, int64_t count, int64_t* ones, int64_t* members) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t code = codes[i];
    int64_t* const counts = ones + clusters[i] * kCodeBits;
    for (int64_t bit = 0; bit < kCodeBits; ++bit) counts[bit] += static_cast<int64_t>(code >> bit & 1U);
    ++members[clusters[i]];
  }
}

}  // namespace xformer::kernels
