// Sums over a row of numbers, in lanes whose order depends on the length alone, and the largest of lanes. Made part of
// the vectorised functions that call them (kernels/cpu/vectorised.h).
#pragma once

#include <utility>

#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

// The largest lane, halves against halves, in registers.
template <int64_t lanes, class Value>
[[gnu::always_inline]] inline Value largest_lane(const typename Vector<Value, lanes>::Lanes& x) {
  if constexpr (lanes == 1) {
    return x[0];
  } else {
    typename Vector<Value, lanes / 2>::Lanes low, high;
    std::memcpy(&low, &x, sizeof(low));
    std::memcpy(&high, reinterpret_cast<const char*>(&x) + sizeof(low), sizeof(high));
    return largest_lane<lanes / 2, Value>(low > high ? low : high);
  }
}

template <class Value>
[[gnu::always_inline]] inline Value dot_of(const Value* a, const Value* b, int64_t count) {
  SumLanes<Value> lanes = {}, x, y;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    load(a + i, x);
    load(b + i, y);
    lanes += x * y;
  }
  Value rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return rest + sum_of<kSumLanes, Value>(lanes);
}

template <class Value>
[[gnu::always_inline]] inline Value total_of(const Value* from, int64_t count) {
  SumLanes<Value> lanes = {}, x;
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    load(from + i, x);
    lanes += x;
  }
  Value rest = 0;
  for (; i < count; ++i) rest += from[i];
  return rest + sum_of<kSumLanes, Value>(lanes);
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

// dots[l] = x . rows[l] for kSumLanes rows, whose sums stay in registers side by side.
template <class Value>
[[gnu::always_inline]] inline void dots_of(const Value* x, const Value* const* rows, int64_t count,
                                           SumLanes<Value>& dots) {
  SumLanes<Value> sums[kSumLanes] = {}, a, b;
  int64_t c = 0;
  for (; c + kSumLanes <= count; c += kSumLanes) {
    load(x + c, a);
    for (int64_t l = 0; l < kSumLanes; ++l) {
      load(rows[l] + c, b);
      sums[l] += a * b;
    }
  }
  fold_all<kSumLanes, Value>(sums);
  for (; c < count; ++c)
    for (int64_t l = 0; l < kSumLanes; ++l) sums[0][l] += x[c] * rows[l][c];
  dots = sums[0];
}

}  // namespace xformer::kernels
