// Sums over a row of numbers and the largest of them, in lanes whose order depends on the length alone. Made part of
// the vectorised functions that call them (kernels/cpu/vectorised.h).
#pragma once

#include <bit>
#include <utility>

#include "kernels/cpu/stored_lanes.h"

namespace xformer::kernels {

template <class Value>
[[gnu::always_inline]] inline Value dot_of(const Value* a, const Value* b, int64_t count) {
  SumRegisters<Value> lanes = {}, x, y;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    x.load_from(a + i);
    y.load_from(b + i);
    lanes += x * y;
  }
  Value rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return rest + lanes.sum();
}

// Of bf16, which is the upper halves of floats.
[[gnu::always_inline]] inline float dot_of(const uint16_t* x, const uint16_t* y, int64_t count) {
  SumRegisters<float> lanes = {}, a, b;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    a.load_upper(x + i);
    b.load_upper(y + i);
    lanes += a * b;
  }
  float rest = 0;
  for (; i < count; ++i)
    rest += std::bit_cast<float>(uint32_t{x[i]} << 16) * std::bit_cast<float>(uint32_t{y[i]} << 16);
  return rest + lanes.sum();
}

template <class Value>
[[gnu::always_inline]] inline Value total_of(const Value* from, int64_t count) {
  SumRegisters<Value> lanes = {}, x;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    x.load_from(from + i);
    lanes += x;
  }
  Value rest = 0;
  for (; i < count; ++i) rest += from[i];
  return rest + lanes.sum();
}

// The largest of `start` and a row's numbers. The last step of a row that is no multiple of a step looks at some
// numbers again.
template <class Value>
[[gnu::always_inline]] inline Value largest_of(const Value* from, int64_t count, Value start) {
  if (count < kSumLanes) {
    for (int64_t i = 0; i < count; ++i) start = start > from[i] ? start : from[i];
    return start;
  }
  SumRegisters<Value> largest, part;
  largest.fill(start);
  for (int64_t i = 0; i < count; i += kSumLanes) {
    part.load_from(from + (i + kSumLanes <= count ? i : count - kSumLanes));
    largest.take_larger(part);
  }
  return largest.largest();
}

// Of two vectors of sums in groups of `group` lanes, each group a sum in the making, one vector of all their groups,
// half as wide: those of `a`, then those of `b`.
template <int64_t group, class Value, int... k>
[[gnu::always_inline]] inline void fold(const SumLanes<Value>& a, const SumLanes<Value>& b, SumLanes<Value>& into,
                                        std::integer_sequence<int, k...>) {
  constexpr int kHalf = group / 2;
  into = __builtin_shufflevector(a, b, (k / kHalf * static_cast<int>(group) + k % kHalf)...) +
         __builtin_shufflevector(a, b, (k / kHalf * static_cast<int>(group) + k % kHalf + kHalf)...);
}

// sums[0] = the sums of the lanes of sums[0] .. sums[group - 1], one behind the other.
template <int64_t group, class Value>
[[gnu::always_inline]] inline void fold_all(SumLanes<Value>* sums) {
  if constexpr (group > 1) {
    for (int64_t i = 0; i < group / 2; ++i)
      fold<group, Value>(sums[2 * i], sums[2 * i + 1], sums[i], std::make_integer_sequence<int, kSumLanes>());
    fold_all<group / 2, Value>(sums);
  }
}

// dots[l] = x . rows[l] for kSumLanes rows. Their sums stay in registers side by side where there are 32 of as many
// lanes; where there are not, a few rows are multiplied at a time.
template <int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void dots_of(const Stored* x, const Stored* const* rows, int64_t count, Value* dots) {
  const int64_t whole = count / kSumLanes * kSumLanes;
  if constexpr (kRegister >= kSumLanes * static_cast<int64_t>(sizeof(Value))) {
    SumLanes<Value> sums[kSumLanes] = {};
    SumRegisters<Value, kRegister> a, b;
    for (int64_t c = 0; c < whole; c += kSumLanes) {
      fetch(x + c, a);
      for (int64_t l = 0; l < kSumLanes; ++l) {
        fetch(rows[l] + c, b);
        sums[l] += a.all * b.all;
      }
    }
    fold_all<kSumLanes, Value>(sums);
    store(sums[0], dots);
  } else {
    constexpr int64_t kAtOnce = 4;
    for (int64_t l = 0; l < kSumLanes; l += kAtOnce) {
      SumRegisters<Value, kRegister> sums[kAtOnce] = {}, a, b;
      for (int64_t c = 0; c < whole; c += kSumLanes) {
        fetch(x + c, a);
        for (int64_t i = 0; i < kAtOnce; ++i) {
          fetch(rows[l + i] + c, b);
          sums[i] += a * b;
        }
      }
      for (int64_t i = 0; i < kAtOnce; ++i) dots[l + i] = sums[i].sum();
    }
  }
  for (int64_t c = whole; c < count; ++c)
    for (int64_t l = 0; l < kSumLanes; ++l) dots[l] += widened(x[c]) * widened(rows[l][c]);
}

}  // namespace xformer::kernels
