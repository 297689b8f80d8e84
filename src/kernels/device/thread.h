// What device programs are written in. A program is what one thread of a block does, a template over the thread that it
// runs as: nvcc compiles it for CUDA devices (device/launch.cuh), and tests walk the same lines on the CPU, block by
// block, every thread a fibre (tests/kernels/block_walk.h). No LibTorch here.
//
//   struct Program {
//     static constexpr int kThreads = 256;   // of a block, a multiple of 32
//     static constexpr int kResident = 2;    // blocks that a multiprocessor's registers must hold at once
//     template <class Thread> XFORMER_DEVICE void operator()(const Thread& thread) const;
//   };
//
// A Thread has
//   int index()                            its place in the block
//   int64_t block(), int64_t blocks()      the block's place in the grid, and how many there are
//   void* shared()                         the block's own memory, 16-byte aligned, holding anything at first
//   void sync()                            waits for all threads of the block
//   int anew(int value)                    the same value, of which a compiler does not know that: what is made of it
//   in a
//                                          loop is made there each time, and takes no registers in between
//   T shuffle_xor(T value, int mask)       the value of the warp's lane `lane ^ mask`; all 32 call it together
//   void load16(const void* from, uint32_t* words), store16(void* to, const uint32_t* words)
//                                          sixteen aligned bytes at once, of the device's memory
//   void put16(void* to, const uint32_t* words)
//                                          likewise into the block's own
//   int64_t arrive(int32_t* counter)       how many blocks called it before, from 0 on; one thread of each block calls
//   double arrived(const double* from)     what a block wrote before it arrived, read by the last that does
//   uint32_t ballot(bool mine)             a bit for each lane of the warp; all 32 call it together
//   void copy16(float* to, const float* from, int count)
//                                          sends the first `count` of four floats to the block's own memory, zeros
//                                          behind
//   void end_copies()                      what this thread sent since the last call is a group, an empty one too
//   void await_copies<kLater>()            until this thread's groups have come, all but the latest kLater; others see
//                                          them behind the next sync()
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/random.h"
#include "kernels/dropout/numbers.h"

#ifdef __CUDACC__
#define XFORMER_DEVICE __device__ __forceinline__
#define XFORMER_UNROLL _Pragma("unroll")
#define XFORMER_UNROLL_TWICE _Pragma("unroll 2")  // of loops whose values lie in memory: less code
#define XFORMER_UNROLL_NEVER _Pragma("unroll 1")  // where registers are short
#else
#define XFORMER_DEVICE inline
#define XFORMER_UNROLL
#define XFORMER_UNROLL_TWICE
#define XFORMER_UNROLL_NEVER
#endif

namespace xformer::kernels {

enum class ElementType { kFloat, kDouble, kHalf, kBFloat16 };

// run(a value of the type), of which double is none. `Types` has what a device calls Half and BFloat16.
template <class Types, class Run>
auto with_element(ElementType type, const Run& run) {
  if (type == ElementType::kHalf) return run(typename Types::Half());
  if (type == ElementType::kBFloat16) return run(typename Types::BFloat16());
  return run(float());
}

// Which of these a type is that programs are instantiated with; who calls a type Half or BFloat16 says so of it.
template <class Value>
inline constexpr ElementType kElementOf = ElementType::kFloat;

// How many blocks a program runs in, and the memory each of them shares.
struct LaunchGrid {
  int64_t blocks = 0;
  int64_t shared_bytes = 0;
};
inline constexpr int64_t kMostBlocks = INT32_MAX;  // of a grid's first dimension; a launch of more is refused
// Of a block on every device from sm_80 on: sm_86, sm_89 and sm_120 have no more, sm_80 has 163 KiB, sm_90 227.
inline constexpr int64_t kMostSharedBytes = 99 * 1024;
inline constexpr int kWarp = 32;
// Rows of a sequence, and elements of a row, that programs number by ints: a few tiles behind the last are ints too.
inline constexpr int64_t kMostNumbered = int64_t{1} << 30;

// What the arithmetic of a type is done in.
template <class Value>
struct Arithmetic {
  using Type = float;
};
template <>
struct Arithmetic<double> {
  using Type = double;
};

[[nodiscard]] XFORMER_DEVICE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

[[nodiscard]] XFORMER_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The larger of two, of which NaN is neither: one instruction on a device.
[[nodiscard]] XFORMER_DEVICE float larger_of(float one, float other) { return fmaxf(one, other); }

// Neighbouring elements that one thread handles: as many as a Philox block decides about.
inline constexpr int kRun = static_cast<int>(kElementsPerBlock);
// How many of them there are where `left` elements are left; 0 of none or fewer.
template <class Count>
[[nodiscard]] XFORMER_DEVICE constexpr int run_length(Count left) {
  return left <= 0 ? 0 : left < kRun ? static_cast<int>(left) : kRun;
}

// How many runs a row of so many elements is.
[[nodiscard]] XFORMER_DEVICE constexpr int64_t runs_of(int64_t elements) { return (elements + kRun - 1) / kRun; }

// Lanes of a warp that share a row of e elements, kRun neighbours each at a time, and the blocks of so many threads
// that have a row for each of them.
[[nodiscard]] XFORMER_DEVICE constexpr int row_lanes(int64_t e) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kRun < e) lanes *= 2;
  return lanes;
}
[[nodiscard]] constexpr LaunchGrid row_grid(int64_t rows, int64_t e, int threads) {
  const int64_t at_once = threads / row_lanes(e);
  return {(rows + at_once - 1) / at_once, 0};
}

// into[i] = from[i] for i < count, 0 behind. `wide`: `from` is 16-byte aligned, and count is 0 or kRun.
template <class Thread, class Value, class Math>
XFORMER_DEVICE void load_run(const Thread& thread, const Value* from, int count, bool wide, Math* into) {
  if (wide && count == kRun) {
    constexpr int kWords = static_cast<int>(sizeof(Value)) * kRun / 4;
    uint32_t words[kWords];
    for (int i = 0; i < kWords; i += 4) thread.load16(reinterpret_cast<const uint32_t*>(from) + i, words + i);
    Value values[kRun];
    memcpy(values, words, sizeof(values));
    for (int i = 0; i < kRun; ++i) into[i] = static_cast<Math>(values[i]);
  } else {
    for (int i = 0; i < kRun; ++i) into[i] = i < count ? static_cast<Math>(from[i]) : Math(0);
  }
}

// to[i] = from[i] for i < count, likewise.
template <class Thread, class Value, class Math>
XFORMER_DEVICE void store_run(const Thread& thread, const Math* from, int count, bool wide, Value* to) {
  if (wide && count == kRun) {
    constexpr int kWords = static_cast<int>(sizeof(Value)) * kRun / 4;
    Value values[kRun];
    for (int i = 0; i < kRun; ++i) values[i] = static_cast<Value>(from[i]);
    uint32_t words[kWords];
    memcpy(words, values, sizeof(values));
    for (int i = 0; i < kWords; i += 4) thread.store16(reinterpret_cast<uint32_t*>(to) + i, words + i);
  } else {
    for (int i = 0; i < kRun; ++i)
      if (i < count) to[i] = static_cast<Value>(from[i]);
  }
}

// A run into the block's own memory, at sixteen bytes there.
template <class Thread>
XFORMER_DEVICE void put_run(const Thread& thread, const float* from, float* to) {
  uint32_t words[kRun];
  for (int i = 0; i < kRun; ++i) words[i] = bits_of(from[i]);
  for (int i = 0; i < kRun; i += 4) thread.put16(to + i, words + i);
}

// Sum over the lanes of a warp that differ in these bits of their number only, `from` <= bit < `to`, powers of two: the
// same in all of them.
template <class Thread, class Math>
XFORMER_DEVICE Math lane_sum(const Thread& thread, Math value, int from, int to) {
  for (int mask = from; mask < to; mask *= 2) value += thread.shuffle_xor(value, mask);
  return value;
}

// Dropout inside a program: that of kernels::dropout of a contiguous tensor.
struct DeviceDrop {
  uint32_t threshold = 0;          // 0: nothing is dropped, and the rest not read
  const int64_t* state = nullptr;  // key, step, first row
  int64_t site = 0;
  int64_t row_elements = 0;  // of the tensor's first dimension
};

// The draws of a tensor's elements.
struct DeviceDraws {
  uint64_t key = 0, high = 0;
  int64_t first = 0;  // the number of the tensor's first element
  uint32_t threshold = 0;

  XFORMER_DEVICE explicit DeviceDraws(const DeviceDrop& drop) : threshold(drop.threshold) {
    if (threshold == 0) return;
    key = static_cast<uint64_t>(drop.state[0]);
    high = dropout_counter_high(drop.state[1], drop.site);
    first = drop.state[2] * drop.row_elements;
  }

  // The draws of kRun elements from `element` on, two in a word.
  XFORMER_DEVICE void words(int64_t element, uint32_t* into) const {
    const int64_t number = first + element, block = number / kRun;
    const int skip = static_cast<int>(number % kRun);
    const PhiloxBlock low = philox(key, static_cast<uint64_t>(block), high);
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) into[i] = low[static_cast<size_t>(i)];
    if (skip == 0) return;
    const PhiloxBlock next = philox(key, static_cast<uint64_t>(block) + 1, high);
    // Moved in steps that are known when this is compiled: an index would keep the words in memory.
    uint32_t all[8] = {low[0], low[1], low[2], low[3], next[0], next[1], next[2], next[3]};
    XFORMER_UNROLL
    for (int i = 0; i < 7; ++i) all[i] = skip % 4 >= 2 ? all[i + 1] : all[i];
    XFORMER_UNROLL
    for (int i = 0; i < 6; ++i) all[i] = skip >= 4 ? all[i + 2] : all[i];
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) into[i] = skip % 2 == 1 ? all[i] >> 16 | all[i + 1] << 16 : all[i];
  }

  // kRun elements from `element` on, times 0 or the survivors' scale; those of several tensors at once.
  template <class... Math>
  XFORMER_DEVICE void apply(int64_t element, Math*... values) const {
    if (threshold == 0) return;
    const double scale = dropout_scale(threshold);
    uint32_t drawn[4];
    words(element, drawn);
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) {
      const uint32_t draw = i % 2 == 1 ? drawn[i / 2] >> 16 : drawn[i / 2] & 0xFFFF;
      ((values[i] = draw < threshold ? Math(0) : values[i] * static_cast<Math>(scale)), ...);
    }
  }
};

}  // namespace xformer::kernels
