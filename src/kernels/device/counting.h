// Sorting by counting on a device, 32 values at a time: every thread of a block counts those among its own entries, and
// sums over values and threads say where each of them belongs. A fixed order, and nothing by atomics.
#pragma once

#include "kernels/device/tile.h"

namespace xformer::kernels {

inline constexpr int kCountedValues = kWarp;  // a lane has one when they are summed
inline constexpr int kCountingWarps = kTileThreads / kWarp;
inline constexpr int kCounterStride = kTileThreads + 1;  // of a value's counters, so that lanes have different banks
// Counters of each value and thread, and sums of each value over a warp's.
inline constexpr int kCounterInts = kCountedValues * kCounterStride + kCountedValues * kCountingWarps;

// Of the lane's value where its entries begin and how many there are, and how many there are of all 32.
struct CountedValue {
  int start, count, all;
};

// From how many entries each thread has of a value, counters[value * kCounterStride + thread], to where the first of
// these belongs: value by value and thread by thread from `start` on. Between two barriers, the second of them inside.
template <class Thread>
XFORMER_DEVICE CountedValue place_counted(const Thread& thread, int start, int* counters) {
  const int lane = thread.index() % kWarp, warp = thread.index() / kWarp;
  int* const sums = counters + kCountedValues * kCounterStride;
  // A lane has a value, a warp the counters of its number.
  int* const column = counters + lane * kCounterStride + warp * kWarp;
  int count = 0;
  for (int i = 0; i < kWarp; ++i) count += column[i];
  sums[warp * kCountedValues + lane] = count;
  thread.sync();
  int before = 0, all = 0;  // of the value in warps before this one, and in all
  for (int i = 0; i < kCountingWarps; ++i) {
    if (i == warp) before = all;
    all += sums[i * kCountedValues + lane];
  }
  int total = all;
  XFORMER_UNROLL
  for (int mask = 1; mask < kWarp; mask *= 2) {
    const int other = thread.shuffle_xor(total, mask);
    if ((lane & mask) != 0) start += other;
    total += other;
  }
  int at = start + before;
  for (int i = 0; i < kWarp; ++i) {
    const int here = column[i];
    column[i] = at;
    at += here;
  }
  thread.sync();
  return {start, all, total};
}

}  // namespace xformer::kernels
