// Products of tiles on a device's matrix units: a warp multiplies 16 rows by 8 columns over 8 places by
// mma.sync.m16n8k8 of TF32 operands with sums in float (PTX manual, "Matrix fragments for mma.m16n8k8"). A Thread has,
// beside what thread.h says,
//   uint32_t tf32(float value)                          to 10 bits of mantissa, the nearest, ties away from zero
//   float exp(float value), exp2(float value)           to about 22 bits
//   float reciprocal(float value)                       likewise, and 0 from 2^126 on
//   void mma(float* c, const uint32_t* a, const uint32_t* b)   c += a b, in the manual's fragments
//
// Lane l = 4 g + t holds of a tile of 16 x 8 sums c[0], c[1]: row g, columns 2 t, 2 t + 1; c[2], c[3]: row g + 8. Which
// of the 8 places of the inner dimension a register stands for is ours to choose, so long as both operands agree.
#pragma once

#include "kernels/device/thread.h"

namespace xformer::kernels {

// How exact products are.
enum class ProductKind {
  kTf32,   // operands of 10 bits of mantissa
  kFloat,  // as good as float: each operand is the sum of two of 10 bits, of whose four products three count
};

inline constexpr int kTileRows = 16, kTileColumns = 8, kTilePlaces = 8;

// Where a lane stands in fragments.
struct FragmentPlace {
  int row, pair;  // g, t

  template <class Thread>
  XFORMER_DEVICE explicit FragmentPlace(const Thread& thread)
      : row(thread.index() % kWarp / 4), pair(thread.index() % 4) {}
};

// A float as a sum of two TF32 numbers, in three instructions instead of the eight of two conversions, which spend most
// of them on infinity and NaN. The nearest of 10 bits of mantissa, and of the rest, which may have either sign, what
// the units read. A NaN may be lost to the first, by a carry into its sign, but is not to the second.
XFORMER_DEVICE void split_float(float value, uint32_t& high, uint32_t& low) {
  high = (bits_of(value) + 0x1000u) & 0xFFFFE000u;
  low = bits_of(value - float_of(high));
}

// c += a b with the lane's operands: a[0], a[1] of rows g and g + 8 at the first of its two places, a[2], a[3] at the
// second; b[0], b[1] of column g at these places.
template <ProductKind kKind, class Thread>
XFORMER_DEVICE void multiply_tile(const Thread& thread, const float* a, const float* b, float* c) {
  uint32_t a_high[4], b_high[2];
  if constexpr (kKind == ProductKind::kFloat) {
    uint32_t a_low[4], b_low[2];
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) split_float(a[i], a_high[i], a_low[i]);
    XFORMER_UNROLL
    for (int i = 0; i < 2; ++i) split_float(b[i], b_high[i], b_low[i]);
    thread.mma(c, a_low, b_high);
    thread.mma(c, a_high, b_low);
  } else {
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) a_high[i] = thread.tf32(a[i]);
    XFORMER_UNROLL
    for (int i = 0; i < 2; ++i) b_high[i] = thread.tf32(b[i]);
  }
  thread.mma(c, a_high, b_high);
}

// Rows of floats in shared memory, `stride` apart. A stride of 4 more than a multiple of 32 keeps the lanes of both
// products below in different banks.
struct SharedRows {
  float* values;
  int stride;

  [[nodiscard]] XFORMER_DEVICE float* at(int row, int column = 0) const { return values + row * stride + column; }
};
[[nodiscard]] constexpr int shared_stride(int width) { return (width + 31) / 32 * 32 + 4; }

// c[j] += rows (columns 8 j .. 8 j + 7 of the tile)^T over `width` places, a multiple of 8: rows `first` .. first + 15
// of the one by kTiles * 8 rows of the other.
template <ProductKind kKind, int kWidth, int kTiles, class Thread>
XFORMER_DEVICE void multiply_rows(const Thread& thread, const SharedRows& rows, int first, const SharedRows& columns,
                                  float (*c)[4]) {
  const FragmentPlace place(thread);
  XFORMER_UNROLL_TWICE
  for (int k = 0; k < kWidth; k += kTilePlaces) {
    const float* const from = rows.at(first + place.row, k + place.pair);
    const float a[4] = {from[0], from[8 * rows.stride], from[4], from[8 * rows.stride + 4]};
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const float* const column = columns.at(j * kTileColumns + place.row, k + place.pair);
      const float b[2] = {column[0], column[4]};
      multiply_tile<kKind>(thread, a, b, c[j]);
    }
  }
}

// c[j] += left (columns 8 j .. 8 j + 7 of right) over kWidth places, a multiple of 8, which are the right's rows: of
// the left's rows `first` .. first + 15, or, turned, of these columns of the left.
template <ProductKind kKind, bool kTurned, int kWidth, int kTiles, class Thread>
XFORMER_DEVICE void multiply_columns(const Thread& thread, const SharedRows& left, int first, const SharedRows& right,
                                     float (*c)[4]) {
  const FragmentPlace place(thread);
  const auto at = [&](int row, int k) { return kTurned ? *left.at(k, first + row) : *left.at(first + row, k); };
  XFORMER_UNROLL_TWICE
  for (int k = 0; k < kWidth; k += kTilePlaces) {
    const int even = k + 2 * place.pair;
    const float a[4] = {at(place.row, even), at(place.row + 8, even), at(place.row, even + 1),
                        at(place.row + 8, even + 1)};
    const float* const from = right.at(even, place.row);
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const float b[2] = {from[j * kTileColumns], from[j * kTileColumns + right.stride]};
      multiply_tile<kKind>(thread, a, b, c[j]);
    }
  }
}

// sum[j] += weights (rows of the tile): 16 x kPlaces * 8 weights as a product left them by kPlaces * 8 rows of width
// kTiles * 8. The lane's weights are of places 2 t and 2 t + 1, so these are what its registers stand for here.
template <ProductKind kKind, int kPlaces, int kTiles, class Thread>
XFORMER_DEVICE void multiply_weights(const Thread& thread, const float (*weights)[4], const SharedRows& rows,
                                     float (*sum)[4]) {
  const FragmentPlace place(thread);
  XFORMER_UNROLL
  for (int k = 0; k < kPlaces; ++k) {
    const float a[4] = {weights[k][0], weights[k][2], weights[k][1], weights[k][3]};
    const float* const from = rows.at(k * kTilePlaces + 2 * place.pair, place.row);
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const float b[2] = {from[j * kTileColumns], from[j * kTileColumns + rows.stride]};
      multiply_tile<kKind>(thread, a, b, sum[j]);
    }
  }
}

// sum[j] += weights (columns of the tile)^T: likewise, by kTiles * 8 rows of width kPlaces * 8.
template <ProductKind kKind, int kPlaces, int kTiles, class Thread>
XFORMER_DEVICE void multiply_weights_turned(const Thread& thread, const float (*weights)[4], const SharedRows& columns,
                                            float (*sum)[4]) {
  const FragmentPlace place(thread);
  XFORMER_UNROLL
  for (int k = 0; k < kPlaces; ++k) {
    const float a[4] = {weights[k][0], weights[k][2], weights[k][1], weights[k][3]};
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const float* const column = columns.at(j * kTileColumns + place.row, k * kTilePlaces + 2 * place.pair);
      const float b[2] = {column[0], column[1]};
      multiply_tile<kKind>(thread, a, b, sum[j]);
    }
  }
}

}  // namespace xformer::kernels
