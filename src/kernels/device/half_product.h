// Products of tiles whose numbers lie in shared memory as fp16: one of them for each number, or the sum of two, which
// has 22 bits and makes products as good as float's (three of the four that two sums have count). A warp multiplies by
// mma.sync.m16n8k16 with sums in float (PTX manual, "Matrix fragments for mma.m16n8k16"), twice the numbers of TF32's.
// Range is the caller's care: 2^14 at most leaves 2^-24 for the rest. Tiles of one number each may hold bf16 as well,
// where a product is told so. A Thread has, beside what product.h says,
//   uint32_t halves(float first, float second)         two numbers to the nearest fp16, the first in the low half
//   void floats(uint32_t halves, float* two)           and back
//   void mma_half<kType>(float* c, const uint32_t* a, const uint32_t* b)   c += a b, in the manual's fragments
//   SharedPlace place_in(const char* shared)            a place in shared memory, in bytes that can be added to
//   void load_matrices<kTurned>(SharedPlace row, uint32_t* into)
//       four matrices of 8 x 8 fp16 (ldmatrix): lane l tells where row l % 8 of matrix l / 8 lies, sixteen aligned
//       bytes of shared memory; into[i]: of matrix i the lane's row g, columns 2 t and 2 t + 1, or, turned, its column
//       g
#pragma once

#include "kernels/device/tile.h"

namespace xformer::kernels {

// A tile of 64 rows: in each the first terms of kWidth numbers, then, if there are two, the second ones, eight of them
// in sixteen bytes. Rows lie behind each other, their pieces turned so that a matrix's eight are in different banks.
template <int kWidth, int kTerms>
struct HalfTile {
  static constexpr int kTermPieces = kWidth / 8, kPieces = kTermPieces * kTerms, kRowBytes = 16 * kPieces;
  static constexpr int kBytes = kTileSide * kRowBytes;
  static constexpr int kSteps = kWidth / 16;  // of products over the width

  // Where in a tile a piece of a row begins. Of rows 8 apart, pieces lie as far apart as the rows.
  [[nodiscard]] XFORMER_DEVICE static int place(int row, int piece) {
    const int turn = kPieces >= 8 ? row % 8 : row / 2 % 4;
    return row * kRowBytes + (piece ^ turn) * 16;
  }
};

// Two numbers as the sums of fp16.
template <int kTerms, class Thread>
XFORMER_DEVICE void split_halves(const Thread& thread, float first, float second, uint32_t (&terms)[kTerms]) {
  terms[0] = thread.halves(first, second);
  if constexpr (kTerms == 2) {
    float near[2];
    thread.floats(terms[0], near);
    terms[1] = thread.halves(first - near[0], second - near[1]);
  }
}

// c += a b of sums of terms, for kCount products side by side: what one waits for is work for the others.
template <int kTerms, int kCount, ElementType kType = ElementType::kHalf, class Thread, class A, class B, class C>
XFORMER_DEVICE void multiply_terms(const Thread& thread, const A& a, const B& b, const C& c) {
  static_assert(kTerms == 1 || kType == ElementType::kHalf);
  if constexpr (kTerms == 2) {
    XFORMER_UNROLL
    for (int i = 0; i < kCount; ++i) thread.template mma_half<kType>(c(i), a(i, 1), b(i, 0));
    XFORMER_UNROLL
    for (int i = 0; i < kCount; ++i) thread.template mma_half<kType>(c(i), a(i, 0), b(i, 1));
  }
  XFORMER_UNROLL
  for (int i = 0; i < kCount; ++i) thread.template mma_half<kType>(c(i), a(i, 0), b(i, 0));
}

// Sixteen rows of a tile as the left operand of products over its width.
template <int kWidth, int kTerms>
struct HalfRows {
  using Tile = HalfTile<kWidth, kTerms>;
  uint32_t numbers[kTerms][Tile::kSteps][4];

  template <class Thread>
  XFORMER_DEVICE void load(const Thread& thread, const char* tile, int first) {
    const int lane = thread.index() % kWarp;
    XFORMER_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      XFORMER_UNROLL
      for (int step = 0; step < Tile::kSteps; ++step)
        thread.template load_matrices<false>(
            thread.place_in(tile) + first * Tile::kRowBytes +
                Tile::place(lane % 16, term * Tile::kTermPieces + 2 * step + lane / 16),
            numbers[term][step]);
    }
  }
};

// The left operand of products, sixteen rows of the result: rows `first` .. of a tile over its width, or, turned, so
// many of its columns over its rows.
template <int kWidth, int kTerms, bool kTurned>
struct HalfLeft {
  using Tile = HalfTile<kWidth, kTerms>;
  const char* tile;
  int first;  // a multiple of 16

  // Over the sixteen places of a step.
  template <class Thread>
  XFORMER_DEVICE void load(const Thread& thread, int step, uint32_t (&numbers)[kTerms][4]) const {
    const int lane = thread.index() % kWarp;
    XFORMER_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      if constexpr (kTurned)
        thread.template load_matrices<true>(
            thread.place_in(tile) + 16 * step * Tile::kRowBytes +
                Tile::place(lane / 16 * 8 + lane % 8, term * Tile::kTermPieces + first / 8 + lane / 8 % 2),
            numbers[term]);
      else
        thread.template load_matrices<false>(
            thread.place_in(tile) + first * Tile::kRowBytes +
                Tile::place(lane % 16, term * Tile::kTermPieces + 2 * step + lane / 16),
            numbers[term]);
    }
  }
};

// The right operand, of tiles behind each other: their rows over their width, or, turned, their columns over their
// rows.
template <int kWidth, int kTerms, bool kTurned>
struct HalfRight {
  using Tile = HalfTile<kWidth, kTerms>;
  const char* tiles;

  // Columns 8 j .. 8 j + 15 of the result over the places of a step: registers 0 and 1 are of the first eight.
  template <class Thread>
  XFORMER_DEVICE void load(const Thread& thread, int step, int j, uint32_t (&numbers)[kTerms][4]) const {
    constexpr int kAcross = (kTurned ? kWidth : kTileSide) / kTileColumns;  // of a tile
    const int lane = thread.index() % kWarp, own = j % kAcross;
    const auto tile = thread.place_in(tiles) + j / kAcross * Tile::kBytes;
    XFORMER_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      if constexpr (kTurned)
        thread.template load_matrices<true>(
            tile + 16 * step * Tile::kRowBytes + Tile::place(lane % 16, term * Tile::kTermPieces + own + lane / 16),
            numbers[term]);
      else
        thread.template load_matrices<false>(
            tile + 8 * own * Tile::kRowBytes +
                Tile::place(lane / 16 * 8 + lane % 8, term * Tile::kTermPieces + 2 * step + lane / 8 % 2),
            numbers[term]);
    }
  }
};

// c[j] += left right over kSteps times sixteen places, 8 kTiles columns, an even number of tiles.
template <int kTerms, int kSteps, int kTiles, ElementType kType = ElementType::kHalf, class Thread, class Left,
          class Right>
XFORMER_DEVICE void multiply_halves(const Thread& thread, const Left& left, const Right& right, float (*c)[4]) {
  XFORMER_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    uint32_t rows[kTerms][4], columns[kTiles / 2][kTerms][4];
    left.load(thread, step, rows);
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; j += 2) right.load(thread, step, j, columns[j / 2]);
    multiply_terms<kTerms, kTiles, kType>(
        thread, [&](int, int term) { return rows[term]; },
        [&](int j, int term) { return columns[j / 2][term] + j % 2 * 2; }, [&](int j) { return c[j]; });
  }
}

// c[j] += rows (rows first + 8 j .. first + 8 j + 7 of the tile)^T.
template <int kWidth, int kTerms>
struct RowProduct {
  const HalfRows<kWidth, kTerms>& rows;
  const char* tile;
  float (*c)[4];
};

// kTiles of them, an even number, of kCount products side by side.
template <int kTiles, int kWidth, int kTerms, int kCount, class Thread>
XFORMER_DEVICE void multiply_rows(const Thread& thread, const RowProduct<kWidth, kTerms> (&of)[kCount], int first) {
  using Tile = HalfTile<kWidth, kTerms>;
  const int lane = thread.index() % kWarp;
  XFORMER_UNROLL
  for (int j = 0; j < kTiles; j += 2) {
    uint32_t columns[2 * kCount][kTerms][Tile::kSteps][2];
    XFORMER_UNROLL
    for (int i = 0; i < 2 * kCount; ++i) {
      const auto place = thread.place_in(of[i / 2].tile) + (first + 8 * (j + i % 2)) * Tile::kRowBytes;
      XFORMER_UNROLL
      for (int term = 0; term < kTerms; ++term) {
        XFORMER_UNROLL
        for (int step = 0; step < Tile::kSteps; step += 2)
          thread.template load_matrices<false>(
              place + Tile::place(lane % 8, term * Tile::kTermPieces + 2 * step + lane / 8), columns[i][term][step]);
      }
    }
    XFORMER_UNROLL
    for (int step = 0; step < Tile::kSteps; ++step)
      multiply_terms<kTerms, 2 * kCount>(
          thread, [&](int i, int term) { return of[i / 2].rows.numbers[term][step]; },
          [&](int i, int term) { return columns[i][term][step]; }, [&](int i) { return of[i / 2].c[j + i % 2]; });
  }
}

// sum[j] += weights (rows first .. of the tile, columns 8 j .. 8 j + 7): kPlaces * 8 weights, as a product left them,
// by as many rows; kPlaces is even.
template <int kPlaces, int kWidth, int kTerms, class Thread>
XFORMER_DEVICE void multiply_weights(const Thread& thread, const float (*weights)[4], const char* tile, int first,
                                     float (*sum)[4]) {
  using Tile = HalfTile<kWidth, kTerms>;
  const int lane = thread.index() % kWarp;
  const auto place = thread.place_in(tile) + first * Tile::kRowBytes;
  XFORMER_UNROLL
  for (int k = 0; k < kPlaces; k += 2) {
    uint32_t left[kTerms][4];
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) {  // of tile k rows g and g + 8, then of the next
      const float* const pair = weights[k + i / 2] + i % 2 * 2;
      uint32_t terms[kTerms];
      split_halves(thread, pair[0], pair[1], terms);
      XFORMER_UNROLL
      for (int term = 0; term < kTerms; ++term) left[term][i] = terms[term];
    }
    XFORMER_UNROLL
    for (int j = 0; j < kWidth / 8; j += 2) {
      uint32_t right[kTerms][4];
      XFORMER_UNROLL
      for (int term = 0; term < kTerms; ++term)
        thread.template load_matrices<true>(
            place + Tile::place(lane % 16, term * Tile::kTermPieces + j + lane / 16) + 8 * k * Tile::kRowBytes,
            right[term]);
      multiply_terms<kTerms, 2>(
          thread, [&](int, int term) { return left[term]; }, [&](int i, int term) { return right[term] + i * 2; },
          [&](int i) { return sum[j + i]; });
    }
  }
}

}  // namespace xformer::kernels
