// Operands of products as a block has them in its own memory, tiles of 64 rows of 64 numbers: of floats, which are
// multiplied as TF32 or as sums of two such (product.h), and of sixteen bits, which are multiplied as they are, twice
// as many at once (half_product.h). A matrix in either becomes a tile of either: floats are rounded where the tile has
// sixteen bits, as autocast rounds them.
#pragma once

#include "kernels/device/half_product.h"
#include "kernels/device/tile.h"

namespace xformer::kernels {

// `Half`: what is stored in sixteen bits, and then multiplied so; float where nothing is.
template <ProductKind kKind, class Half>
struct OperandTile {
  using Tile = HalfTile<kTileSide, 1>;
  static constexpr int kBytes = Tile::kBytes;
  static constexpr int kStepRows = kTileSide;  // of tiles of which a block has four, two of them on their way
  char* memory;

  XFORMER_DEVICE explicit OperandTile(char* place) : memory(place) {}

  // Rows of a matrix as send_tile() of tile.h takes them.
  template <int kRows = kTileSide, class Thread, class Value>
  XFORMER_DEVICE void send(const Thread& thread, const Value* matrix, const RowPlaces& places, int width, int64_t first,
                           int64_t count, const bool* valid = nullptr) const {
    constexpr int kRuns = kTileSide / kRun, kAtOnce = kTileThreads / kRuns;  // rows
    const int row = thread.index() / kRuns, piece = thread.index() % kRuns, column = piece * kRun;
    const int across = run_length(width - column);
    XFORMER_UNROLL_TWICE
    for (int i = 0; i < kRows; i += kAtOnce) {
      const int64_t from = first + row + i;
      const int there = from < count && (valid == nullptr || valid[from]) ? across : 0;
      const Value* const run = matrix + (there == 0 ? 0 : from * places.row + column);
      char* const to = memory + Tile::place(row + i, piece);
      if constexpr (std::is_same_v<Value, Half>) {
        if (places.wide) {
          thread.copy16(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(run), there == 0 ? 0 : 4);
          continue;
        }
      }
      float values[kRun];
      load_run(thread, run, there, places.wide, values);
      put_halves(thread, values, to);
    }
  }

  // A run of a row.
  template <class Thread>
  XFORMER_DEVICE void put(const Thread& thread, const float* values, int row, int column) const {
    put_halves(thread, values, memory + Tile::place(row, column / kRun));
  }

  [[nodiscard]] XFORMER_DEVICE float at(int row, int column) const {
    Half value;
    memcpy(&value, memory + Tile::place(row, column / kRun) + column % kRun * 2, sizeof(value));
    return static_cast<float>(value);
  }

  // c[j] += rows `first` .. first + 15 of this by rows 8 j .. 8 j + 7 of the other, all 64 of them.
  template <class Thread>
  XFORMER_DEVICE void by_rows(const Thread& thread, int first, const OperandTile& other, float (*c)[4]) const {
    multiply_halves<1, kTileSide / 16, kTileSide / kTileColumns, kElementOf<Half>>(
        thread, HalfLeft<kTileSide, 1, /*kTurned=*/false>{memory, first},
        HalfRight<kTileSide, 1, /*kTurned=*/false>{other.memory}, c);
  }
  // c[j] += these rows, or, turned, such columns of this over its first kPlaces rows, by columns 8 j .. 8 j + 7 of the
  // other over so many rows of it.
  template <bool kTurned, int kPlaces, class Thread>
  XFORMER_DEVICE void by_columns(const Thread& thread, int first, const OperandTile& other, float (*c)[4]) const {
    multiply_halves<1, kPlaces / 16, kTileSide / kTileColumns, kElementOf<Half>>(
        thread, HalfLeft<kTileSide, 1, kTurned>{memory, first}, HalfRight<kTileSide, 1, /*kTurned=*/true>{other.memory},
        c);
  }

 private:
  template <class Thread>
  XFORMER_DEVICE static void put_halves(const Thread& thread, const float* values, char* to) {
    Half halves[kRun];
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) halves[i] = static_cast<Half>(values[i]);
    uint32_t words[kRun / 2];
    memcpy(words, halves, sizeof(words));
    thread.put16(to, words);
  }
};

template <ProductKind kKind>
struct OperandTile<kKind, float> {
  static constexpr int kBytes = kTileFloats * 4;
  static constexpr int kStepRows = kTileSide / 2;
  float* memory;

  XFORMER_DEVICE explicit OperandTile(char* place) : memory(reinterpret_cast<float*>(place)) {}
  [[nodiscard]] XFORMER_DEVICE SharedRows rows() const { return {memory, shared_stride(kTileSide)}; }
  template <int kRows = kTileSide, class Thread>
  XFORMER_DEVICE void send(const Thread& thread, const float* matrix, const RowPlaces& places, int width, int64_t first,
                           int64_t count, const bool* valid = nullptr) const {
    send_tile<kTileSide, kRows>(thread, matrix, places, width, first, count, valid, rows());
  }
  template <class Thread>
  XFORMER_DEVICE void put(const Thread& thread, const float* values, int row, int column) const {
    put_run(thread, values, rows().at(row, column));
  }
  [[nodiscard]] XFORMER_DEVICE float at(int row, int column) const { return *rows().at(row, column); }

  template <class Thread>
  XFORMER_DEVICE void by_rows(const Thread& thread, int first, const OperandTile& other, float (*c)[4]) const {
    multiply_rows<kKind, kTileSide, kTileSide / kTileColumns>(thread, rows(), first, other.rows(), c);
  }
  template <bool kTurned, int kPlaces, class Thread>
  XFORMER_DEVICE void by_columns(const Thread& thread, int first, const OperandTile& other, float (*c)[4]) const {
    multiply_columns<kKind, kTurned, kPlaces, kTileSide / kTileColumns>(thread, rows(), first, other.rows(), c);
  }
};

// Bytes of such a tile of a launch.
[[nodiscard]] constexpr int operand_bytes(ElementType half) {
  return half == ElementType::kFloat ? OperandTile<ProductKind::kFloat, float>::kBytes : HalfTile<kTileSide, 1>::kBytes;
}

}  // namespace xformer::kernels
