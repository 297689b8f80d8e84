// Sums over a row of numbers, in lanes whose order depends on the length alone. Made part of the vectorised functions
// that call them (kernels/cpu/vectorised.h).
#pragma once

#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

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

}  // namespace xformer::kernels
