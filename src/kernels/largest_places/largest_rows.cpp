// The k largest numbers of a row by bisection of their bits: as whole numbers of the same order they are counted
// against a bound that grows bit by bit, until as many as are wanted lie above it.
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/vectorised.h"
#include "kernels/largest_places/cpu.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kMarks = 8;   // of a word
constexpr uint64_t kAbove = 2;  // the mark of a number above the bound; 1: of one that is equal to it
static_assert(std::endian::native == std::endian::little, "the lowest byte of a word is the first of its marks");

// Without sign bit, and turned round where that was set: of the same order as the numbers, zeros of both signs equal,
// NaNs above all.
template <class Value, class Bits>
[[gnu::always_inline]] inline void order_of(const Value* row, int64_t n, Bits* __restrict order) {
  constexpr Bits kSign = Bits(1) << (8 * sizeof(Bits) - 1);
  for (int64_t i = 0; i < n; ++i) {
    const Bits bits = std::bit_cast<Bits>(row[i] + Value(0)), ordered = (bits & kSign) != 0 ? ~bits : bits | kSign;
    order[i] = row[i] != row[i] ? std::numeric_limits<Bits>::max() : ordered;
  }
}

template <class Bits>
[[gnu::always_inline]] inline int64_t count_from(const Bits* order, int64_t n, Bits bound) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += order[i] >= bound ? 1 : 0;
  return count;
}

template <class Value, class Bits>
[[gnu::always_inline]] inline void largest(const Value* row, int64_t n, int64_t k, Bits* __restrict order,
                                           int64_t* __restrict places) {
  order_of(row, n, order);
  // The largest bound that k numbers or more reach.
  Bits bound = 0;
  int64_t reach = n;
  for (Bits bit = Bits(1) << (8 * sizeof(Bits) - 1); bit != 0 && reach > k; bit >>= 1) {
    const int64_t count = count_from(order, n, bound | bit);
    if (count >= k) bound |= bit, reach = count;
  }
  // Of those that are equal to it, where they are too many, the first.
  constexpr Bits kMost = std::numeric_limits<Bits>::max();
  int64_t equal = reach == k ? n : bound == kMost ? k : k - count_from(order, n, bound + 1);
  // Marks of a byte each, of which most are none: eight are looked at as one number.
  auto* const marks = reinterpret_cast<uint8_t*>(order + n);
  for (int64_t i = 0; i < n; ++i)
    marks[i] = static_cast<uint8_t>((order[i] > bound ? kAbove : 0) | (order[i] == bound));
  for (int64_t i = n; i % kMarks != 0; ++i) marks[i] = 0;
  for (int64_t first = 0, found = 0; found < k; first += kMarks) {
    uint64_t word;
    std::memcpy(&word, marks + first, sizeof(word));
    while (word != 0 && found < k) {
      const int shift = std::countr_zero(word) / 8 * 8;
      const uint64_t mark = word >> shift & 0xff;
      word &= ~(uint64_t{0xff} << shift);
      places[found] = first + shift / 8;
      found += mark == kAbove || equal > 0 ? 1 : 0;
      equal -= mark == kAbove ? 0 : 1;
    }
  }
}

}  // namespace

XFORMER_VECTORISED
void largest_of_row(const float* row, int64_t n, int64_t k, uint32_t* room, int64_t* places) {
  largest(row, n, k, room, places);
}
void largest_of_row(const double* row, int64_t n, int64_t k, uint64_t* room, int64_t* places) {
  largest(row, n, k, room, places);
}

}  // namespace xformer::kernels
