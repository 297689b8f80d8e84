// Buckets of tokens (hash_buckets of hashed_attention.h), and the tokens in the order of their buckets, as device
// programs.
#pragma once

#include <cmath>

#include "kernels/device/counting.h"

namespace xformer::kernels {

inline constexpr int kMostFactors = 4;            // of the number of buckets
inline constexpr int64_t kMostSlots = 80 * 1024;  // of a list: shared memory holds a byte of each

struct HashBucketArguments {
  const float* turned = nullptr;  // [h,b,n,r,columns]
  bool wide = false;              // every digit's columns are whole runs that begin at sixteen bytes
  const bool* valid = nullptr;    // [b,n]; null: all are
  int64_t* buckets = nullptr;     // [b,h,r,slots]
  int b = 0, h = 0, n = 0, rounds = 0, slots = 0, columns = 0;
  int factors = 0, factor[kMostFactors] = {};
  int64_t behind = 1;  // their product, the bucket of what is no token
};

// A thread has a slot of a round.
struct HashBucketsProgram {
  static constexpr int kThreads = 256, kResident = 4;
  HashBucketArguments a;

  [[nodiscard]] static constexpr LaunchGrid grid(const HashBucketArguments& a) {
    return {(int64_t{a.b} * a.h * a.slots * a.rounds + kThreads - 1) / kThreads, 0};
  }

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t number = thread.block() * kThreads + thread.index(), of_head = int64_t{a.slots} * a.rounds;
    if (number >= int64_t{a.b} * a.h * of_head) return;
    // As the rows of `turned` lie, so that neighbours read neighbours.
    const int round = static_cast<int>(number % a.rounds), slot = static_cast<int>(number / a.rounds % a.slots);
    const int64_t head = number / of_head / a.b, sample = number / of_head % a.b;
    const bool counts = slot < a.n && (a.valid == nullptr || a.valid[sample * a.n + slot]);
    int64_t bucket = counts ? 0 : a.behind;
    if (counts) {
      const float* row = a.turned + (((head * a.b + sample) * a.n + slot) * a.rounds + round) * a.columns;
      int64_t unit = 1;
      XFORMER_UNROLL
      for (int i = 0; i < kMostFactors; ++i) {
        if (i >= a.factors) break;
        const int half = a.factor[i] / 2;
        bucket += unit * digit(thread, row, half);
        unit *= a.factor[i];
        row += half;
      }
    }
    a.buckets[((sample * a.h + head) * a.rounds + round) * a.slots + slot] = bucket;
  }

 private:
  // Where [x; -x] is largest, the first of equals.
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE int digit(const Thread& thread, const float* x, int half) const {
    int winner = 0;
    float best = x[0];
    for (int first = 0; first < half; first += kRun) {
      float run[kRun];
      load_run(thread, x + first, run_length(half - first), a.wide, run);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i)
        if (first + i < half && std::fabs(run[i]) > std::fabs(best)) best = run[i], winner = first + i;
    }
    return best < 0 ? winner + half : winner;
  }
};

struct HashedOrderArguments {
  const int64_t* buckets = nullptr;  // [lists,slots], from 0
  int* order = nullptr;              // [lists,slots]
  int64_t lists = 0;
  int slots = 0, parts = 1;  // the second: blocks of a list
};

// The slots of a list by bucket, equal buckets in their order. Part p of a list has the buckets 32 p to 32 p + 31, then
// those 32 times the number of parts on, and so on until there are none.
struct HashedOrderProgram {
  static constexpr int kThreads = kTileThreads, kResident = 2, kNone = 255;
  HashedOrderArguments a;

  // Slots of a thread, neighbours: an odd number of words, so that lanes have different banks.
  [[nodiscard]] static constexpr int slots_each(int slots) {
    return ((slots + kThreads - 1) / kThreads + 3) / 4 * 4 | 4;
  }
  [[nodiscard]] static constexpr LaunchGrid grid(const HashedOrderArguments& a) {
    return {a.lists * a.parts, (kCounterInts + kCountingWarps) * 4 + kThreads * slots_each(a.slots)};
  }

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const counters = static_cast<int*>(thread.shared());
    int* const smaller = counters + kCounterInts;
    // Of each slot its bucket less the first of these 32, or none of them.
    auto* const codes = reinterpret_cast<uint8_t*>(smaller + kCountingWarps);
    const int64_t list = thread.block() / a.parts * a.slots;
    const int index = thread.index(), each = slots_each(a.slots), begin = index * each;
    const int end = begin + each < a.slots ? begin + each : a.slots;
    int* const own = counters + index;
    // Buckets may be more than an int counts.
    for (int64_t first = thread.block() % a.parts * kCountedValues;; first += int64_t{a.parts} * kCountedValues) {
      const int below = lane_sum(thread, encode(thread, a.buckets + list, first, codes), 1, kWarp);
      if (index % kWarp == 0) smaller[index / kWarp] = below;
      for (int value = 0; value < kCountedValues; ++value) own[value * kCounterStride] = 0;
      thread.sync();
      for (int i = begin; i < end; ++i)
        if (codes[i] != kNone) ++own[codes[i] * kCounterStride];
      int start = 0;
      for (int i = 0; i < kCountingWarps; ++i) start += smaller[i];
      thread.sync();
      const int all = place_counted(thread, start, counters).all;
      for (int i = begin; i < end; ++i)
        if (codes[i] != kNone) a.order[list + own[codes[i] * kCounterStride]++] = i;
      if (start + all == a.slots) return;
      thread.sync();
    }
  }

 private:
  // How many of the slots that the thread looks at have a smaller bucket.
  template <class Thread>
  XFORMER_DEVICE int encode(const Thread& thread, const int64_t* buckets, int64_t first, uint8_t* codes) const {
    constexpr int kAtOnce = 8;
    int below = 0;
    for (int from = thread.index(); from < a.slots; from += kAtOnce * kThreads) {
      int64_t bucket[kAtOnce];
      XFORMER_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = from + j * kThreads;
        bucket[j] = i < a.slots ? buckets[i] : 0;
      }
      XFORMER_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = from + j * kThreads;
        if (i >= a.slots) continue;
        const int64_t value = bucket[j] - first;
        below += value < 0 ? 1 : 0;
        codes[i] = static_cast<uint8_t>(value >= 0 && value < kCountedValues ? value : int64_t{kNone});
      }
    }
    return below;
  }
};

}  // namespace xformer::kernels
