// Matrices as products of fp16 take them (half_product.h): tiles of 64 rows, of one number each where the matrix has no
// more bits, else of two whose sum is the number, times a power of two of the tile, so that its largest is 2^13 or more
// and less than 2^14. What is less than 2^-17 of that keeps fewer than 22 bits; nothing is farther away than 2^-38 of
// the largest. Rows that do not count are zeros, and so is what a tile has behind the last row or column, so that
// products ask for neither validity nor bounds where they read.
#pragma once

#include "kernels/device/half_product.h"
#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kPlaneExponent = 14, kPlaneThreads = 256;

// How many numbers of fp16 make one of a matrix: TF32 and 16 bits have no more mantissa than one of them.
[[nodiscard]] constexpr int plane_terms(ProductKind kind) { return kind == ProductKind::kFloat ? 2 : 1; }
[[nodiscard]] constexpr int plane_terms(ElementType type, ProductKind kind) {
  return type == ElementType::kFloat ? plane_terms(kind) : 1;
}

// The larger of `largest` and the sizes of a run's finite numbers; the others make no scale.
[[nodiscard]] XFORMER_DEVICE float larger_size(float largest, const float* values) {
  XFORMER_UNROLL
  for (int i = 0; i < kRun; ++i) {
    const float size = float_of(bits_of(values[i]) & 0x7FFFFFFFu);
    if (size < static_cast<float>(INFINITY) && size > largest) largest = size;
  }
  return largest;
}

// The largest among kThreads threads of the block, in all of them; `memory`: a float for each warp.
template <int kThreads, class Thread>
[[nodiscard]] XFORMER_DEVICE float block_largest(const Thread& thread, float value, float* memory) {
  XFORMER_UNROLL
  for (int mask = 1; mask < kWarp; mask *= 2) value = larger_of(value, thread.shuffle_xor(value, mask));
  if (thread.index() % kWarp == 0) memory[thread.index() / kWarp] = value;
  thread.sync();
  XFORMER_UNROLL
  for (int i = 0; i < kThreads / kWarp; ++i) value = larger_of(value, memory[i]);
  return value;
}

// The power of two that brings the largest below 2^kPlaneExponent.
[[nodiscard]] XFORMER_DEVICE float plane_factor(float largest) {
  if (largest == 0) return 1;
  constexpr int kMost = 126;  // the inverse is a float too
  const int exponent = kPlaneExponent + 126 - static_cast<int>(bits_of(largest) >> 23);
  const int own = exponent > kMost ? kMost : exponent < -kMost ? -kMost : exponent;
  return float_of(static_cast<uint32_t>(127 + own) << 23);
}

// A run of a tile as fp16: store(place in the tile, four words) for each of its terms.
template <class Tile, int kTerms, class Thread, class Store>
XFORMER_DEVICE void store_halves(const Thread& thread, const float* values, float factor, int row, int piece,
                                 const Store& store) {
  uint32_t words[kTerms][kRun / 2];
  XFORMER_UNROLL
  for (int i = 0; i < kRun; i += 2) {
    uint32_t terms[kTerms];
    split_halves(thread, values[i] * factor, values[i + 1] * factor, terms);
    XFORMER_UNROLL
    for (int term = 0; term < kTerms; ++term) words[term][i / 2] = terms[term];
  }
  XFORMER_UNROLL
  for (int term = 0; term < kTerms; ++term) store(Tile::place(row, term * Tile::kTermPieces + piece), words[term]);
}

// The runs of a tile of 64 rows that each of kThreads threads has.
template <int kWidth, int kThreads>
struct TileRuns {
  static constexpr int kLanes = kWidth / kRun, kRows = kThreads / kLanes, kTurns = kTileSide / kRows;
  float values[kTurns][kRun];

  // Those of rows `first` .. of a matrix `width` wide for which counts(row) holds, zeros else. Returns the largest size
  // in the tile, more than 0 unless it is zero all over; `memory`: a float for each warp.
  template <class Thread, class Value, class Counts>
  [[nodiscard]] XFORMER_DEVICE float load(const Thread& thread, const Value* matrix, const RowPlaces& places,
                                          int64_t width, int64_t first, const Counts& counts, float* memory) {
    const int column = thread.index() % kLanes * kRun, across = run_length(width - column);
    float largest = 0;
    bool finite = true;
    XFORMER_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t row = first + turn * kRows + thread.index() / kLanes;
      const int count = counts(row) ? across : 0;
      load_run(thread, matrix + (count == 0 ? 0 : row * places.row + column), count, places.wide, values[turn]);
      largest = larger_size(largest, values[turn]);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) finite = finite && values[turn][i] - values[turn][i] == 0;
    }
    if (!finite && largest == 0) largest = 1;
    return block_largest<kThreads>(thread, largest, memory);
  }

  // Times the factor, as store_halves() says.
  template <int kTerms, class Thread, class Store>
  XFORMER_DEVICE void store(const Thread& thread, float factor, const Store& store) const {
    XFORMER_UNROLL
    for (int turn = 0; turn < kTurns; ++turn)
      store_halves<HalfTile<kWidth, kTerms>, kTerms>(
          thread, values[turn], factor, turn * kRows + thread.index() / kLanes, thread.index() % kLanes, store);
  }
};

// Sends a tile from the device's memory to the block's own.
template <class Tile, class Thread>
XFORMER_DEVICE void send_plane(const Thread& thread, const void* plane, int64_t tile, char* into) {
  const int own = thread.anew(thread.index()) * 16;
  const auto* const from = static_cast<const char*>(plane) + tile * Tile::kBytes + own;
  XFORMER_UNROLL
  for (int at = 0; at < Tile::kBytes; at += kTileThreads * 16)
    thread.copy16(reinterpret_cast<float*>(into + own + at), reinterpret_cast<const float*>(from + at), 4);
}

// What becomes tiles.
struct TileSource {
  Stored from;  // [samples,heads,rows,at least columns]
  HeadPlaces places;
  const bool* valid = nullptr;  // [samples,rows]; null: all rows count
  int64_t samples = 0, heads = 0, rows = 0;
  int width = 0;                   // of a tile: 32 or 64
  int64_t columns = 0, strip = 0;  // head i has columns - i strip, up to the width
  void* tiles = nullptr;           // of each head, one behind the other
  float* inverses = nullptr;       // of each tile one over its power of two; 0 of those that are zero all over

  [[nodiscard]] XFORMER_DEVICE constexpr int64_t head_tiles() const { return tiles_of(rows); }
  [[nodiscard]] XFORMER_DEVICE constexpr int64_t count() const { return samples * heads * head_tiles(); }
  [[nodiscard]] constexpr int64_t bytes(int terms) const { return count() * kTileSide * width * terms * 2; }
};

inline constexpr int kMostTileSources = 5;

struct TilePlaneArguments {
  ElementType half = ElementType::kFloat;  // of what is stored in sixteen bits
  int terms = 1;
  int count = 0;
  TileSource sources[kMostTileSources];
};

[[nodiscard]] constexpr LaunchGrid tile_plane_grid(const TilePlaneArguments& a) {
  int64_t tiles = 0;
  for (int i = 0; i < a.count; ++i) tiles += a.sources[i].count();
  return {tiles, kPlaneThreads / kWarp * 4};
}

template <int kTerms, class Half>
struct TilePlaneProgram {
  static constexpr int kThreads = kPlaneThreads, kResident = 4;
  TilePlaneArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    int64_t tile = thread.block();  // among the source's
    XFORMER_UNROLL
    for (int i = 0; i < kMostTileSources; ++i) {
      if (i >= a.count) return;
      const TileSource& of = a.sources[i];
      if (tile < of.count()) {
        with_stored<Half>(of.from, [&](const auto* from) {
          if (of.width == kTileSide) fill<kTileSide>(thread, of, tile, from);
          else fill<kTileSide / 2>(thread, of, tile, from);
        });
        return;
      }
      tile -= of.count();
    }
  }

 private:
  template <int kWidth, class Thread, class Value>
  XFORMER_DEVICE void fill(const Thread& thread, const TileSource& of, int64_t number, const Value* from) const {
    const int64_t head = number / of.head_tiles(), first = number % of.head_tiles() * kTileSide;
    const int64_t sample = head / of.heads, place = head % of.heads;
    const auto counts = [&](int64_t row) {
      return row < of.rows && (of.valid == nullptr || of.valid[sample * of.rows + row]);
    };
    TileRuns<kWidth, kThreads> runs;
    const float largest = runs.load(thread, from + sample * of.places.sample + place * of.places.head, of.places,
                                    of.columns - place * of.strip, first, counts, static_cast<float*>(thread.shared()));
    const float factor = plane_factor(largest);
    if (thread.index() == 0) of.inverses[number] = largest == 0 ? 0.0f : 1 / factor;
    auto* const tile = static_cast<char*>(of.tiles) + number * static_cast<int64_t>(HalfTile<kWidth, kTerms>::kBytes);
    runs.template store<kTerms>(thread, factor,
                                [&](int at, const uint32_t* words) { thread.store16(tile + at, words); });
  }
};

// launch(grid, program). `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_tile_planes(const TilePlaneArguments& a, const Launch& launch) {
  with_element<Types>(a.half, [&]<class Half>(Half) {
    if (a.terms == 1) launch(tile_plane_grid(a), TilePlaneProgram<1, Half>{a});
    else if constexpr (std::is_same_v<Half, float>) launch(tile_plane_grid(a), TilePlaneProgram<2, float>{a});
  });
}

}  // namespace xformer::kernels
