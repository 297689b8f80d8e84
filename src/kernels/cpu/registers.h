// Numbers side by side in as many registers as they need. One vector that is wider than a register of the processor is
// taken apart at every operation, but what a loop carries on in it lies in memory, and every step waits for the stores
// of the one before it (g++ 12: sums of 64 bytes with registers of 32). Made part of vectorised functions
// (kernels/cpu/vectorised.h).
#pragma once

#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

// `bytes` of a register. What fits into one is one vector, the rest halves.
template <class Value, int64_t lanes, int64_t bytes,
          bool fits = (lanes * static_cast<int64_t>(sizeof(Value)) <= bytes || lanes == 1)>
struct Registers {
  typename Vector<Value, lanes>::Lanes all;

  [[gnu::always_inline]] friend inline Registers operator+(const Registers& x, const Registers& y) {
    return {x.all + y.all};
  }
  [[gnu::always_inline]] friend inline Registers operator-(const Registers& x, const Registers& y) {
    return {x.all - y.all};
  }
  [[gnu::always_inline]] friend inline Registers operator*(const Registers& x, const Registers& y) {
    return {x.all * y.all};
  }
  [[gnu::always_inline]] friend inline Registers operator-(const Registers& x, Value y) { return {x.all - y}; }
  [[gnu::always_inline]] friend inline Registers operator*(const Registers& x, Value y) { return {x.all * y}; }
  [[gnu::always_inline]] inline void operator+=(const Registers& x) { all += x.all; }
  [[gnu::always_inline]] inline void load_from(const Value* from) { std::memcpy(&all, from, sizeof(all)); }
  // Of float, from bf16, which is the upper halves.
  [[gnu::always_inline]] inline void load_upper(const uint16_t* from) {
    typename Vector<uint16_t, lanes>::Lanes upper;
    std::memcpy(&upper, from, sizeof(upper));
    using Whole = typename Vector<uint32_t, lanes>::Lanes;
    all = (typename Vector<Value, lanes>::Lanes)(__builtin_convertvector(upper, Whole) << 16);
  }
  [[gnu::always_inline]] inline void store_to(Value* into) const { std::memcpy(into, &all, sizeof(all)); }
  // Lane by lane what `>` says is larger, else x's.
  [[gnu::always_inline]] inline void take_larger(const Registers& x) { all = all > x.all ? all : x.all; }
  [[gnu::always_inline]] inline void fill(Value x) { all = typename Vector<Value, lanes>::Lanes{} + x; }
  // Of all lanes, halves upon halves.
  [[gnu::always_inline]] inline Value sum() const { return sum_of<lanes, Value>(all); }
  [[gnu::always_inline]] inline Value largest() const { return largest_lane<lanes, Value>(all); }
};

template <class Value, int64_t lanes, int64_t bytes>
struct Registers<Value, lanes, bytes, false> {
  Registers<Value, lanes / 2, bytes> low, high;

  [[gnu::always_inline]] friend inline Registers operator+(const Registers& x, const Registers& y) {
    return {x.low + y.low, x.high + y.high};
  }
  [[gnu::always_inline]] friend inline Registers operator-(const Registers& x, const Registers& y) {
    return {x.low - y.low, x.high - y.high};
  }
  [[gnu::always_inline]] friend inline Registers operator*(const Registers& x, const Registers& y) {
    return {x.low * y.low, x.high * y.high};
  }
  [[gnu::always_inline]] friend inline Registers operator-(const Registers& x, Value y) {
    return {x.low - y, x.high - y};
  }
  [[gnu::always_inline]] friend inline Registers operator*(const Registers& x, Value y) {
    return {x.low * y, x.high * y};
  }
  [[gnu::always_inline]] inline void operator+=(const Registers& x) { low += x.low, high += x.high; }
  [[gnu::always_inline]] inline void load_from(const Value* from) {
    low.load_from(from), high.load_from(from + lanes / 2);
  }
  [[gnu::always_inline]] inline void load_upper(const uint16_t* from) {
    low.load_upper(from), high.load_upper(from + lanes / 2);
  }
  [[gnu::always_inline]] inline void store_to(Value* into) const {
    low.store_to(into), high.store_to(into + lanes / 2);
  }
  [[gnu::always_inline]] inline void take_larger(const Registers& x) {
    low.take_larger(x.low), high.take_larger(x.high);
  }
  [[gnu::always_inline]] inline void fill(Value x) { low.fill(x), high.fill(x); }
  [[gnu::always_inline]] inline Value sum() const { return (low + high).sum(); }
  [[gnu::always_inline]] inline Value largest() const {
    auto both = low;
    both.take_larger(high);
    return both.largest();
  }
};

// The lanes of a row's sums (kSumLanes). Where a step waits for the one before it, as in one sum over a row, two
// registers of 32 bytes take as long as one of 64, so that no version of a function needs to know.
template <class Value, int64_t bytes = 32>
using SumRegisters = Registers<Value, kSumLanes, bytes>;

}  // namespace xformer::kernels
