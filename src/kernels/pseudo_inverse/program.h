// The pseudo-inverse (pseudo_inverse.h) as device programs: a block holds a matrix of one head, and what its iterations
// make of it, in shared memory from the first to the last, forwards and backwards; the forward pass leaves every Z.
// Sixteen warps have 16 by 16 numbers of each product, which are as good as float's at any precision. Rows and columns
// of landmarks that are not valid are zeros, as all behind the last are.
#pragma once

#include "kernels/device/tile.h"

namespace xformer::kernels {

inline constexpr int kInverseThreads = 512;
inline constexpr int kMostLandmarks = kTileSide;  // larger matrices are left to plain operations

struct PseudoInverseArguments {
  const float* a = nullptr;     // [units,m,m]
  const bool* valid = nullptr;  // [units / heads,m]; null: all are
  int64_t units = 0, heads = 0;
  int m = 0;
  int64_t iterations = 0;
  bool wide = false;        // rows of all matrices begin at sixteen bytes
  float* kept = nullptr;    // [units,iterations,m,m]: Z before each step
  float* result = nullptr;  // [units,m,m]; backwards the gradient of a
  const float* gradient = nullptr;
};

inline constexpr int kForwardMatrices = 4, kBackwardMatrices = 5;  // in shared memory
// With so many matrices, a number for each column and warp, and a flag for each landmark.
[[nodiscard]] constexpr LaunchGrid pseudo_inverse_grid(int64_t units, int matrices) {
  return {units, (int64_t{matrices} * kTileFloats + kTileSide + kInverseThreads / kWarp + kTileSide / 4) * 4};
}

// Where a thread stands: its warp's part of every product, and its run of every matrix.
struct InversePlace {
  static constexpr int kTiles = 2;  // of 8 columns
  int row, column, own_row, own_column;

  template <class Thread>
  XFORMER_DEVICE explicit InversePlace(const Thread& thread)
      : row(thread.index() / kWarp % 4 * kTileRows),
        column(thread.index() / kWarp / 4 * kTiles * kTileColumns),
        own_row(thread.index() / (kTileSide / kRun)),
        own_column(thread.index() % (kTileSide / kRun) * kRun) {}

  // visit(row, column, sum) for the sums of the thread.
  template <class Thread, class Visit>
  XFORMER_DEVICE void for_sums(const Thread& thread, float (&sum)[kTiles][4], const Visit& visit) const {
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      XFORMER_UNROLL
      for (int i = 0; i < 4; ++i)
        visit(row + place.row + (i >= 2 ? 8 : 0), column + j * kTileColumns + 2 * place.pair + i % 2, sum[j][i]);
    }
  }
};

// Matrices of 64 by 64 in shared memory and their products, of which each warp makes its part.
using InverseSums = float[InversePlace::kTiles][4];
template <ProductKind kKind>
struct InverseMatrices {
  float* memory;
  InversePlace place;

  [[nodiscard]] XFORMER_DEVICE SharedRows at(int which) const {
    return {memory + which * kTileFloats, shared_stride(kTileSide)};
  }
  // sum += a b, a^T b, a b^T.
  template <class Thread>
  XFORMER_DEVICE void add(const Thread& thread, const SharedRows& a, const SharedRows& b, InverseSums& sum) const {
    multiply_columns<kKind, /*kTurned=*/false, kTileSide, InversePlace::kTiles>(thread, a, place.row,
                                                                                {b.at(0, place.column), b.stride}, sum);
  }
  template <class Thread>
  XFORMER_DEVICE void add_turned(const Thread& thread, const SharedRows& a, const SharedRows& b,
                                 InverseSums& sum) const {
    multiply_columns<kKind, /*kTurned=*/true, kTileSide, InversePlace::kTiles>(thread, a, place.row,
                                                                               {b.at(0, place.column), b.stride}, sum);
  }
  template <class Thread>
  XFORMER_DEVICE void add_by_turned(const Thread& thread, const SharedRows& a, const SharedRows& b,
                                    InverseSums& sum) const {
    multiply_rows<kKind, kTileSide, InversePlace::kTiles>(thread, a, place.row, {b.at(place.column), b.stride}, sum);
  }
  // into = factor sum + diagonal I, once everybody has done with `into`.
  template <class Thread>
  XFORMER_DEVICE void put(const Thread& thread, InverseSums& sum, float factor, float diagonal,
                          const SharedRows& into) const {
    thread.sync();
    place.for_sums(thread, sum,
                   [&](int i, int j, float value) { *into.at(i, j) = factor * value + (i == j ? diagonal : 0.0f); });
    thread.sync();
  }
  // sum -= factor x.
  template <class Thread>
  XFORMER_DEVICE void take(const Thread& thread, float factor, const SharedRows& x, InverseSums& sum) const {
    place.for_sums(thread, sum, [&](int i, int j, float& value) { value -= factor * *x.at(i, j); });
  }
};

// One head's matrix in the device's memory, and which of its rows and columns count.
struct InverseUnit {
  const PseudoInverseArguments& a;
  const InversePlace& place;
  const bool* counts;  // [64], in shared memory

  [[nodiscard]] XFORMER_DEVICE int64_t run() const { return int64_t{place.own_row} * a.m + place.own_column; }
  [[nodiscard]] XFORMER_DEVICE int width() const {
    return place.own_row < a.m ? run_length(a.m - place.own_column) : 0;
  }
  // The thread's run of a matrix, 0 where it does not count, whatever lies there.
  template <class Thread>
  XFORMER_DEVICE void load(const Thread& thread, const float* matrix, float* values) const {
    load_run(thread, matrix + run(), width(), a.wide, values);
    keep_counting(values);
  }
  XFORMER_DEVICE void keep_counting(float* values) const {
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i)
      if (!counts[place.own_row] || !counts[place.own_column + i]) values[i] = 0;
  }
  template <class Thread>
  XFORMER_DEVICE void load_into(const Thread& thread, const float* matrix, const SharedRows& into) const {
    float values[kRun];
    load(thread, matrix, values);
    put_run(thread, values, into.at(place.own_row, place.own_column));
  }
  template <class Thread>
  XFORMER_DEVICE void store(const Thread& thread, float* values, float* matrix) const {
    keep_counting(values);
    store_run(thread, values, width(), a.wide, matrix + run());
  }
  template <class Thread>
  XFORMER_DEVICE void store_from(const Thread& thread, const SharedRows& from, float* matrix) const {
    float values[kRun];
    load_run(thread, from.at(place.own_row, place.own_column), kRun, /*wide=*/true, values);
    store(thread, values, matrix);
  }
};

// Which of 64 landmarks of a head count.
template <class Thread>
XFORMER_DEVICE void load_landmarks(const Thread& thread, const PseudoInverseArguments& a, bool* counts) {
  const int i = thread.index();
  if (i < kTileSide) counts[i] = i < a.m && (a.valid == nullptr || a.valid[thread.block() / a.heads * a.m + i]);
  thread.sync();
}

// The sums of a matrix's columns, none of which is negative, to shared memory, and the largest of them in all threads.
template <class Thread>
XFORMER_DEVICE float largest_column(const Thread& thread, const SharedRows& matrix, float* sums) {
  const int j = thread.index();
  if (j < kTileSide) {
    float sum = 0;
    for (int i = 0; i < kTileSide; ++i) sum += *matrix.at(i, j);
    sums[j] = sum;
  }
  thread.sync();
  float largest = 0;
  for (int i = 0; i < kTileSide; ++i) largest = sums[i] > largest ? sums[i] : largest;
  return largest;
}

// What a block holds beside its matrices.
struct InverseRoom {
  float *sums, *totals;
  bool* counts;

  XFORMER_DEVICE InverseRoom(float* memory, int matrices)
      : sums(memory + matrices * kTileFloats),
        totals(sums + kTileSide),
        counts(reinterpret_cast<bool*>(totals + kInverseThreads / kWarp)) {}
};

template <ProductKind kKind>
struct PseudoInverseForwardProgram {
  static constexpr int kThreads = kInverseThreads, kResident = 2;
  PseudoInverseArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const InverseMatrices<kKind> matrices{static_cast<float*>(thread.shared()), InversePlace(thread)};
    const InverseRoom room(matrices.memory, kForwardMatrices);
    const InverseUnit unit{a, matrices.place, room.counts};
    const SharedRows own = matrices.at(0), z = matrices.at(1), p = matrices.at(2), t = matrices.at(3);
    const int64_t size = int64_t{a.m} * a.m;
    load_landmarks(thread, a, room.counts);
    unit.load_into(thread, a.a + thread.block() * size, own);
    thread.sync();
    const float norm = largest_column(thread, own, room.sums);
    const InversePlace& place = matrices.place;
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i)
      *z.at(place.own_row, place.own_column + i) =
          *own.at(place.own_column + i, place.own_row) / (norm == 0 ? 1.0f : norm);
    thread.sync();
    for (int64_t step = 0; step < a.iterations; ++step) {
      unit.store_from(thread, z, a.kept + (thread.block() * a.iterations + step) * size);
      InverseSums of_p = {}, of_t = {}, of_u = {}, next = {};
      matrices.add(thread, own, z, of_p);
      matrices.put(thread, of_p, 1, 0, p);
      matrices.add(thread, p, p, of_t);
      matrices.take(thread, 7, p, of_t);
      matrices.put(thread, of_t, 1, 15, t);
      matrices.add(thread, p, t, of_u);
      matrices.put(thread, of_u, -1, 13, t);
      matrices.add(thread, z, t, next);
      matrices.put(thread, next, 0.25f, 0, z);
    }
    unit.store_from(thread, z, a.result + thread.block() * size);
  }
};

// With P = A Z, T = 15 I - P (7 I - P) and U = 13 I - P T made again from each Z, and d the gradient of Z U / 4:
//   dU = Z^T d / 4,  dT = -P^T dU,  dP = dT P^T + P^T dT - 7 dT - dU T^T,  dA += dP Z^T,  dZ = d U^T / 4 + A^T dP
// and in the end what comes through Z = A^T / c, c the largest of the columns' sums; equal ones share it.
template <ProductKind kKind>
struct PseudoInverseBackwardProgram {
  static constexpr int kThreads = kInverseThreads, kResident = 1;
  PseudoInverseArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const InverseMatrices<kKind> matrices{static_cast<float*>(thread.shared()), InversePlace(thread)};
    const InverseRoom room(matrices.memory, kBackwardMatrices);
    const InverseUnit unit{a, matrices.place, room.counts};
    const SharedRows z = matrices.at(0), p = matrices.at(1), t = matrices.at(2), slope = matrices.at(3),
                     more = matrices.at(4);
    const SharedRows& own = p;  // A lies there where P is not needed: a sixth matrix has no room on every device
    const int64_t size = int64_t{a.m} * a.m;
    load_landmarks(thread, a, room.counts);
    unit.load_into(thread, a.a + thread.block() * size, own);
    unit.load_into(thread, a.gradient + thread.block() * size, slope);
    InverseSums of_a = {};
    for (int64_t step = a.iterations - 1; step >= 0; --step) {
      InverseSums of_p = {}, of_t = {}, of_u = {}, of_z = {};
      unit.load_into(thread, a.kept + (thread.block() * a.iterations + step) * size, z);
      thread.sync();
      matrices.add(thread, own, z, of_p);
      matrices.put(thread, of_p, 1, 0, p);
      matrices.add(thread, p, p, of_t);
      matrices.take(thread, 7, p, of_t);
      matrices.put(thread, of_t, 1, 15, t);
      matrices.add(thread, p, t, of_u);
      matrices.put(thread, of_u, -1, 13, more);  // U
      InverseSums d_u = {}, d_t = {}, d_p = {};
      matrices.add_by_turned(thread, slope, more, of_z);  // four times
      matrices.add_turned(thread, z, slope, d_u);
      matrices.put(thread, d_u, 0.25f, 0, more);  // dU
      matrices.add_turned(thread, p, more, d_t);
      matrices.put(thread, d_t, -1, 0, slope);  // dT
      matrices.add_by_turned(thread, more, t, d_p);
      XFORMER_UNROLL
      for (int j = 0; j < InversePlace::kTiles; ++j) {
        XFORMER_UNROLL
        for (int i = 0; i < 4; ++i) d_p[j][i] = -d_p[j][i], of_z[j][i] *= 0.25f;
      }
      matrices.take(thread, 7, slope, d_p);
      matrices.add_by_turned(thread, slope, p, d_p);
      matrices.add_turned(thread, p, slope, d_p);
      matrices.put(thread, d_p, 1, 0, more);  // dP
      unit.load_into(thread, a.a + thread.block() * size, own);
      matrices.add_by_turned(thread, more, z, of_a);
      thread.sync();
      matrices.add_turned(thread, own, more, of_z);
      matrices.put(thread, of_z, 1, 0, slope);  // dZ
    }
    matrices.put(thread, of_a, 1, 0, more);
    finish(thread, unit, room, own, slope, more);
  }

 private:
  template <class Thread>
  XFORMER_DEVICE void finish(const Thread& thread, const InverseUnit& unit, const InverseRoom& room,
                             const SharedRows& own, const SharedRows& slope, const SharedRows& of_a) const {
    const InversePlace& place = unit.place;
    const float norm = largest_column(thread, own, room.sums), factor = norm == 0 ? 1.0f : norm;
    float values[kRun], sum = 0;
    load_run(thread, of_a.at(place.own_row, place.own_column), kRun, /*wide=*/true, values);
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) {
      const float d = *slope.at(place.own_column + i, place.own_row);
      values[i] += d / factor;
      sum -= d * *own.at(place.own_row, place.own_column + i);
    }
    sum = lane_sum(thread, sum, 1, kWarp);
    if (thread.index() % kWarp == 0) room.totals[thread.index() / kWarp] = sum;
    thread.sync();
    float of_norm = 0;
    int equal = 0;
    for (int i = 0; i < kThreads / kWarp; ++i) of_norm += room.totals[i];
    for (int i = 0; i < kTileSide; ++i) equal += room.sums[i] == norm ? 1 : 0;
    if (norm != 0) {
      of_norm /= norm * norm * static_cast<float>(equal);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i)
        if (room.sums[place.own_column + i] == norm) values[i] += of_norm;
    }
    unit.store(thread, values, a.result + thread.block() * a.m * a.m);
  }
};

// launch(grid, program) for either pass.
template <class Launch>
auto run_pseudo_inverse(const PseudoInverseArguments& a, bool backward, const Launch& launch) {
  return backward ? launch(pseudo_inverse_grid(a.units, kBackwardMatrices),
                           PseudoInverseBackwardProgram<ProductKind::kFloat>{a})
                  : launch(pseudo_inverse_grid(a.units, kForwardMatrices),
                           PseudoInverseForwardProgram<ProductKind::kFloat>{a});
}

}  // namespace xformer::kernels
