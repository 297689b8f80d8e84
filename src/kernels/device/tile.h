// Tiles of matrices in shared memory: 64 rows, which four warps multiply 16 each (device/product.h), and the way of a
// tile between the device's memory, shared memory and the fragments of products.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/device/product.h"

namespace xformer::kernels {

inline constexpr int kTileThreads = 128, kTileSide = 64;
// Floats of a tile as wide as it is high.
inline constexpr int kTileFloats = kTileSide * shared_stride(kTileSide);

[[nodiscard]] constexpr int64_t tiles_of(int64_t count) { return (count + kTileSide - 1) / kTileSide; }

// Blocks over which work is spread: two for each multiprocessor of a large device, and the same number on every other.
inline constexpr int64_t kSpreadBlocks = 264;

// How the rows are divided where each part is summed in so many tiles, for so many blocks.
struct RowDivision {
  int64_t parts, part_tiles;  // the second: of 64 rows, in every part but the last
};
[[nodiscard]] constexpr RowDivision row_division(int64_t rows, int64_t tiles, int64_t blocks = kSpreadBlocks) {
  const int64_t row_tiles = tiles_of(rows), most = std::clamp<int64_t>(blocks / tiles, 1, row_tiles);
  const int64_t part_tiles = (row_tiles + most - 1) / most;
  return {(row_tiles + part_tiles - 1) / part_tiles, part_tiles};
}

// A matrix in memory: floats, or numbers of sixteen bits, of the one such type that a program knows.
struct Stored {
  const void* at = nullptr;
  bool half = false;
};
struct StoredTo {
  void* at = nullptr;
  bool half = false;
};
// run(pointer); Half is float in a program that knows no other.
template <class Half, class Run>
XFORMER_DEVICE void with_stored(const Stored& matrix, const Run& run) {
  if constexpr (!std::is_same_v<Half, float>)
    if (matrix.half) return run(static_cast<const Half*>(matrix.at));
  run(static_cast<const float*>(matrix.at));
}
template <class Half, class Run>
XFORMER_DEVICE void with_stored(const StoredTo& matrix, const Run& run) {
  if constexpr (!std::is_same_v<Half, float>)
    if (matrix.half) return run(static_cast<Half*>(matrix.at));
  run(static_cast<float*>(matrix.at));
}

// Where the rows of a matrix lie, the last axis without gaps.
struct RowPlaces {
  int64_t row = 0;    // elements from one row to the next
  bool wide = false;  // rows of whole runs that begin at sixteen bytes
};

// Rows of a matrix into shared memory, kRows of kWidth: for each row of the tile place_of(row) of the matrix, -1: none;
// 0 there and behind the matrix's width, whatever lies there. Floats in whole runs are sent (thread.h), so that they
// come together and while the block does something else; of others all are read before any is stored, for a compiler
// cannot know that one does not change the next. Whoever sends ends the group and awaits it.
template <int kWidth, int kRows = kTileSide, class Thread, class Value, class PlaceOf>
XFORMER_DEVICE void send_rows(const Thread& thread, const Value* matrix, const RowPlaces& places, int width,
                              const PlaceOf& place_of, const SharedRows& into) {
  if constexpr (std::is_same_v<Value, float>) {
    if (places.wide) {
      constexpr int kPiece = 4, kPieces = kWidth / kPiece;
      XFORMER_UNROLL_NEVER
      for (int i = 0; i < kRows * kPieces / kTileThreads; ++i) {
        const int place = i * kTileThreads + thread.index(), row = place / kPieces, column = place % kPieces * kPiece;
        const int64_t from = place_of(row);
        const int left = from < 0 ? 0 : width - column, count = left < 0 ? 0 : left < kPiece ? left : kPiece;
        thread.copy16(into.at(row, column), matrix + (count > 0 ? from * places.row + column : 0), count);
      }
      return;
    }
  }
  constexpr int kRuns = kWidth / kRun, kTurns = kRows * kRuns / kTileThreads, kAtOnce = kTurns < 2 ? kTurns : 2;
  for (int turn = 0; turn < kTurns; turn += kAtOnce) {
    float values[kAtOnce][kRun];
    XFORMER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int place = (turn + i) * kTileThreads + thread.index(), row = place / kRuns, column = place % kRuns * kRun;
      const int64_t from = place_of(row);
      const int left = from < 0 || column >= width ? 0 : run_length(width - column);
      load_run(thread, matrix + (left == 0 ? 0 : from * places.row + column), left, places.wide, values[i]);
    }
    XFORMER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int place = (turn + i) * kTileThreads + thread.index(), row = place / kRuns, column = place % kRuns * kRun;
      put_run(thread, values[i], into.at(row, column));
    }
  }
}

// Those from `first` on, but for rows behind `count` and where `valid` (null: all are) says so.
template <int kWidth, int kRows = kTileSide, class Thread, class Value>
XFORMER_DEVICE void send_tile(const Thread& thread, const Value* matrix, const RowPlaces& places, int width,
                              int64_t first, int64_t count, const bool* valid, const SharedRows& into) {
  if constexpr (std::is_same_v<Value, float>) {
    if (places.wide && valid == nullptr && first + kRows <= count && width >= kWidth) {  // most tiles
      constexpr int kPiece = 4, kPieces = kWidth / kPiece;
      const int row = thread.index() / kPieces, column = thread.index() % kPieces * kPiece;
      const float* from = matrix + (first + row) * places.row + column;
      XFORMER_UNROLL
      for (int i = 0; i < kRows * kPieces / kTileThreads; ++i) {
        thread.copy16(into.at(row + i * (kTileThreads / kPieces), column), from, kPiece);
        from += kTileThreads / kPieces * places.row;
      }
      return;
    }
  }
  const auto place_of = [&](int row) {
    const int64_t from = first + row;
    return from < count && (valid == nullptr || valid[from]) ? from : int64_t{-1};
  };
  send_rows<kWidth, kRows>(thread, matrix, places, width, place_of, into);
}

// What was sent has come, to be seen by others behind the next sync().
template <class Thread>
XFORMER_DEVICE void await_sent(const Thread& thread) {
  thread.end_copies();
  thread.template await_copies<0>();
}

// Likewise, there at once.
template <int kWidth, int kRows = kTileSide, class Thread, class Value, class PlaceOf>
XFORMER_DEVICE void load_rows(const Thread& thread, const Value* matrix, const RowPlaces& places, int width,
                              const PlaceOf& place_of, const SharedRows& into) {
  send_rows<kWidth, kRows>(thread, matrix, places, width, place_of, into);
  await_sent(thread);
}
template <int kWidth, int kRows = kTileSide, class Thread, class Value>
XFORMER_DEVICE void load_tile(const Thread& thread, const Value* matrix, const RowPlaces& places, int width,
                              int64_t first, int64_t count, const bool* valid, const SharedRows& into) {
  send_tile<kWidth, kRows>(thread, matrix, places, width, first, count, valid, into);
  await_sent(thread);
}

// Walks over so many tiles, the next of which is on its way while one is used: send(number, turn) to one of two places,
// use(number, turn) from there.
template <class Thread, class Send, class Use>
XFORMER_DEVICE void walk_tiles(const Thread& thread, int64_t count, const Send& send, const Use& use) {
  if (count > 0) send(0, 0);
  thread.end_copies();
  int turn = 0;
  for (int64_t number = 0; number < count; ++number, turn = 1 - turn) {
    thread.sync();
    if (number + 1 < count) send(number + 1, 1 - turn);
    thread.end_copies();
    thread.template await_copies<1>();
    thread.sync();
    use(number, turn);
  }
}

// A warp's sums into 16 rows of a tile.
template <class Thread>
XFORMER_DEVICE void put_fragment(const Thread& thread, const float (*sum)[4], int first, const SharedRows& into) {
  const FragmentPlace place(thread);
  XFORMER_UNROLL
  for (int j = 0; j < kTileSide / kTileColumns; ++j) {
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i)
      *into.at(first + place.row + (i >= 2 ? 8 : 0), j * kTileColumns + 2 * place.pair + i % 2) = sum[j][i];
  }
}

// visit(row, column, values) for the runs of a tile that are this thread's.
template <class Thread, class Visit>
XFORMER_DEVICE void for_runs(const Thread& thread, const SharedRows& tile, const Visit& visit) {
  constexpr int kRuns = kTileSide / kRun;
  XFORMER_UNROLL_NEVER
  for (int i = 0; i < kTileSide * kRuns / kTileThreads; ++i) {
    const int place = i * kTileThreads + thread.index(), row = place / kRuns, column = place % kRuns * kRun;
    float values[kRun];
    load_run(thread, tile.at(row, column), kRun, /*wide=*/true, values);
    visit(row, column, values);
  }
}

// Where a tile stands in a matrix without gaps of `rows` by `width`.
struct TilePlace {
  int64_t row, column, rows, width;

  [[nodiscard]] XFORMER_DEVICE int64_t element(int i, int j) const { return (row + i) * width + column + j; }
  // How many of the kRun elements from row i and column j on there are.
  [[nodiscard]] XFORMER_DEVICE int count(int i, int j) const {
    return row + i < rows ? run_length(width - column - j) : 0;
  }
};

// The block's sums, 16 rows of each warp, plus a bias of the matrix's columns (null: none) to their place, by way of
// `room`, a tile that nobody reads any more after the barrier in here. Zeros, whatever the sums are, in rows of the
// matrix that are not `needed` (null: all are).
template <class Thread>
XFORMER_DEVICE void store_tile(const Thread& thread, const float (*sum)[4], const float* bias, const TilePlace& place,
                               bool wide, const SharedRows& room, float* matrix, const bool* needed = nullptr) {
  constexpr int kPiece = 4, kPieces = kTileSide / kPiece;  // sixteen bytes, so that neighbouring lanes write neighbours
  thread.sync();
  put_fragment(thread, sum, thread.index() / kWarp * kTileRows, room);
  thread.sync();
  const int column = thread.index() % kPieces * kPiece;
  const int64_t across = place.width - place.column - column;
  float more[kPiece] = {};
  if (bias != nullptr) {
    XFORMER_UNROLL
    for (int i = 0; i < kPiece; ++i) more[i] = i < across ? bias[place.column + column + i] : 0.0f;
  }
  XFORMER_UNROLL
  for (int turn = 0; turn < kTileSide * kPieces / kTileThreads; ++turn) {
    const int row = turn * (kTileThreads / kPieces) + thread.index() / kPieces;
    if (place.row + row >= place.rows || across <= 0) continue;
    uint32_t words[kPiece];
    thread.load16(room.at(row, column), words);
    float* const to = matrix + place.element(row, column);
    const bool clears = needed != nullptr && !needed[place.row + row];
    XFORMER_UNROLL
    for (int i = 0; i < kPiece; ++i) words[i] = clears ? 0u : bits_of(float_of(words[i]) + more[i]);
    if (wide) {
      thread.store16(to, words);
    } else {
      XFORMER_UNROLL
      for (int i = 0; i < kPiece; ++i)
        if (i < across) to[i] = float_of(words[i]);
    }
  }
}
// The same of a matrix in sixteen bits.
template <class Thread, class Half>
XFORMER_DEVICE void store_tile(const Thread& thread, const float (*sum)[4], const float* bias, const TilePlace& place,
                               bool wide, const SharedRows& room, Half* matrix, const bool* needed = nullptr) {
  thread.sync();
  put_fragment(thread, sum, thread.index() / kWarp * kTileRows, room);
  thread.sync();
  for_runs(thread, room, [&](int row, int column, float* values) {
    const int count = place.count(row, column);
    if (bias != nullptr) {
      float more[kRun];
      load_run(thread, bias + place.column + column, count, wide, more);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) values[i] += more[i];
    }
    if (needed != nullptr && count > 0 && !needed[place.row + row]) {
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) values[i] = 0;
    }
    store_run(thread, values, count, wide, matrix + place.element(row, column));
  });
}

}  // namespace xformer::kernels
