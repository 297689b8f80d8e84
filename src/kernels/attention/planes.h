// Heads as attention's products take them (device/half_product.h): tiles of 64 rows of fp16 numbers, one each for heads
// that have no more bits, else two whose sum is the number, times a power of two of its head, so that the head's
// largest is 2^13 or more and less than 2^14. What is less than 2^-17 of that keeps fewer than 22 bits; nothing is
// farther away than 2^-38 of the largest. Rows that do not count are zeros, and so is what a tile has behind the last
// row, so that attention asks neither for validity nor for bounds where it reads. Two launches: the largest of each
// tile, then the planes, and of the gradient delta on the way.
#pragma once

#include "kernels/device/tile_planes.h"

namespace xformer::kernels {

// What becomes a plane.
struct PlaneSource {
  const void* heads = nullptr;  // [b,h,rows,width]
  HeadPlaces places;
  const bool* valid = nullptr;  // [b,rows]; null: all rows count
  int64_t rows = 0;
  int width = 0;
  void* plane = nullptr;  // of each head the tiles, one behind the other
};

struct PlaneArguments {
  ElementType type = ElementType::kFloat;
  ProductKind product = ProductKind::kFloat;
  int64_t b = 0, h = 0;
  int count = 0;
  PlaneSource sources[4];
  float* maxima = nullptr;   // one for each tile of all planes
  float* factors = nullptr;  // [count,b,h]: what the heads were multiplied with
  // Where the last source is the output's gradient: the output, [b,rows,h,width], and of each row the product of both.
  const void* out = nullptr;
  float* delta = nullptr;  // [b,h,rows]; 0 for rows that do not count
};

[[nodiscard]] constexpr int64_t plane_blocks(const PlaneArguments& a) {
  int64_t tiles = 0;
  for (int i = 0; i < a.count; ++i) tiles += tiles_of(a.sources[i].rows);
  return a.b * a.h * tiles;
}

[[nodiscard]] constexpr LaunchGrid plane_grid(const PlaneArguments& a) {
  return {plane_blocks(a), 4 * kPlaneThreads / kWarp};
}

// A block has a tile of a head, a few lanes of a warp a row.
struct PlaneTile {
  PlaneSource of;
  int source = 0;
  int64_t tiles = 0;  // of the head
  int64_t head = 0;   // b h numbers
  int64_t tile = 0, first_block = 0;

  XFORMER_DEVICE PlaneTile(const PlaneArguments& a, int64_t block) {
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i >= a.count) break;
      const int64_t own = tiles_of(a.sources[i].rows), all = a.b * a.h * own;
      if (block >= 0 && block < all) {
        of = a.sources[i], source = i, tiles = own;
        head = block / own, tile = block % own, first_block += head * own;
        return;
      }
      block -= all, first_block += all;
    }
  }

  // Where the lane's eight numbers of the row begin, and how many there are; none of rows that do not count.
  template <class Value>
  [[nodiscard]] XFORMER_DEVICE const Value* at(int64_t heads, int64_t row, int column, int& count) const {
    const bool counts = row < of.rows && (of.valid == nullptr || of.valid[head / heads * of.rows + row]);
    count = counts ? run_length(of.width - column) : 0;
    const auto* const own =
        static_cast<const Value*>(of.heads) + head / heads * of.places.sample + head % heads * of.places.head;
    return own + (count == 0 ? 0 : row * of.places.row + column);
  }
};

template <class Value, int kWidth>
struct PlaneMaximaProgram {
  static constexpr int kThreads = kPlaneThreads, kResident = 4;
  static constexpr int kLanes = kWidth / kRun, kRows = kThreads / kLanes;
  PlaneArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const PlaneTile own(a, thread.block());
    const int column = thread.index() % kLanes * kRun;
    float largest = 0;
    XFORMER_UNROLL
    for (int first = 0; first < kTileSide; first += kRows) {
      int count = 0;
      const auto* const from =
          own.at<Value>(a.h, own.tile * kTileSide + first + thread.index() / kLanes, column, count);
      float values[kRun];
      load_run(thread, from, count, own.of.places.wide, values);
      largest = larger_size(largest, values);
    }
    largest = block_largest<kThreads>(thread, largest, static_cast<float*>(thread.shared()));
    if (thread.index() == 0) a.maxima[thread.block()] = largest;
  }
};

template <class Value, ProductKind kKind, int kWidth>
struct PlaneProgram {
  static constexpr int kThreads = kPlaneThreads, kResident = 4;
  static constexpr int kLanes = kWidth / kRun, kRows = kThreads / kLanes;
  static constexpr int kTerms = plane_terms(kKind);
  using Tile = HalfTile<kWidth, kTerms>;
  PlaneArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const PlaneTile own(a, thread.block());
    float largest = 0;
    for (int64_t i = thread.index(); i < own.tiles; i += kThreads)
      largest = larger_of(largest, a.maxima[own.first_block + i]);
    const float factor = plane_factor(block_largest<kThreads>(thread, largest, static_cast<float*>(thread.shared())));
    if (own.tile == 0 && thread.index() == 0) a.factors[own.source * a.b * a.h + own.head] = factor;
    auto* const tile =
        static_cast<char*>(own.of.plane) + (own.head * own.tiles + own.tile) * static_cast<int64_t>(Tile::kBytes);
    const int lane = thread.index() % kLanes, column = lane * kRun;
    XFORMER_UNROLL
    for (int first = 0; first < kTileSide; first += kRows) {
      const int row = first + thread.index() / kLanes;
      const int64_t number = own.tile * kTileSide + row;
      int count = 0;
      const auto* const from = own.at<Value>(a.h, number, column, count);
      float values[kRun];
      load_run(thread, from, count, own.of.places.wide, values);
      if (a.delta != nullptr && own.source == a.count - 1) {
        const auto* const out =
            static_cast<const Value*>(a.out) +
            ((own.head / a.h * own.of.rows + (count == 0 ? 0 : number)) * a.h + own.head % a.h) * own.of.width +
            (count == 0 ? 0 : column);
        float made[kRun], sum = 0;
        load_run(thread, out, count, own.of.width % kRun == 0, made);
        XFORMER_UNROLL
        for (int i = 0; i < kRun; ++i) sum += values[i] * made[i];
        sum = lane_sum(thread, sum, 1, kLanes);
        if (lane == 0 && number < own.of.rows) a.delta[own.head * own.of.rows + number] = sum;
      }
      store_halves<Tile, kTerms>(thread, values, factor, row, lane,
                                 [&](int at, const uint32_t* words) { thread.store16(tile + at, words); });
    }
  }
};

}  // namespace xformer::kernels
