// Marks a function whose loops the compiler vectorises once for each instruction set; the loader picks. Only plain
// functions can be versioned, no templates; what they call is inlined (gnu::always_inline). The layer's flags (-O3
// -fno-trapping-math, CMakeLists.txt) make a selection a vector selection; an attribute here would come too late for
// what is inlined. Other compilers and processors get the plain version. A list within one name, "avx2,fma", would be
// two versions, the first of them without fused multiply-adds; v3 has both.
#pragma once

#include <cstdint>
#include <cstring>

// CMake's XFORMER_AVX512=OFF makes a program that is as fast on any processor as on one without AVX-512, but for what
// libraries do: LIBXSMM_TARGET=hsw and ATEN_CPU_CAPABILITY=avx2 say that to them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(XFORMER_WITHOUT_512)
#define XFORMER_TAKES_512
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#ifdef XFORMER_TAKES_512
#define XFORMER_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define XFORMER_VECTORISED __attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
#define XFORMER_VERSION(instructions, bytes, result, name, parameters, ...)           \
  __attribute__((target(instructions))) static result name##_by_register parameters { \
    constexpr int64_t kRegister = bytes;                                              \
    return __VA_ARGS__;                                                               \
  }
#else
#define XFORMER_VECTORISED
#endif

// A function whose body, the last argument, is told how many bytes a register has: kRegister, for sums that stay in
// registers (kernels/cpu/registers.h).
//   XFORMER_VECTORISED_BY_REGISTER(float, largest, (const float* x, int64_t n), (x, n), largest_of<kRegister>(x, n))
#ifdef XFORMER_TAKES_512
#define XFORMER_VERSION_512(...) XFORMER_VERSION("arch=x86-64-v4", 64, __VA_ARGS__)
#else
#define XFORMER_VERSION_512(...)
#endif
#ifdef XFORMER_VERSION
#define XFORMER_VECTORISED_BY_REGISTER(result, name, parameters, arguments, ...)    \
  XFORMER_VERSION_512(result, name, parameters, __VA_ARGS__)                        \
  XFORMER_VERSION("arch=x86-64-v3", 32, result, name, parameters, __VA_ARGS__)      \
  XFORMER_VERSION("default", kPlainRegister, result, name, parameters, __VA_ARGS__) \
  result name parameters { return name##_by_register arguments; }
#else
#define XFORMER_VECTORISED_BY_REGISTER(result, name, parameters, arguments, ...) \
  result name parameters {                                                       \
    constexpr int64_t kRegister = kPlainRegister;                                \
    return __VA_ARGS__;                                                          \
  }
#endif

namespace xformer::kernels {

// Bytes of a register of any processor, for functions without versions.
inline constexpr int64_t kPlainRegister = 16;

// `lanes` numbers side by side. Wider than a register they lie in memory between two statements: a sum that a loop
// carries on is one of kernels/cpu/registers.h.
template <class Value, int64_t lanes>
struct Vector {
  typedef Value Lanes __attribute__((vector_size(lanes * sizeof(Value))));
};

// A row goes by in steps of so many numbers, with sums side by side, because a compiler may not reorder one.
inline constexpr int64_t kSumLanes = 16;

template <class Value>
using SumLanes = typename Vector<Value, kSumLanes>::Lanes;

// Vectors go by reference: by value they would be passed differently by each version of a function.
template <class Lanes, class Value>
[[gnu::always_inline]] inline void load(const Value* from, Lanes& lanes) {
  std::memcpy(&lanes, from, sizeof(lanes));
}

template <class Lanes, class Value>
[[gnu::always_inline]] inline void store(const Lanes& lanes, Value* into) {
  std::memcpy(into, &lanes, sizeof(lanes));
}

template <int64_t lanes, class Value>
[[gnu::always_inline]] inline void halve(const typename Vector<Value, lanes>::Lanes& x,
                                         typename Vector<Value, lanes / 2>::Lanes& low,
                                         typename Vector<Value, lanes / 2>::Lanes& high) {
  std::memcpy(&low, &x, sizeof(low));
  std::memcpy(&high, reinterpret_cast<const char*>(&x) + sizeof(low), sizeof(high));
}

// The sum of all lanes, halves upon halves.
template <int64_t lanes, class Value>
[[gnu::always_inline]] inline Value sum_of(const typename Vector<Value, lanes>::Lanes& x) {
  if constexpr (lanes == 1) {
    return x[0];
  } else {
    typename Vector<Value, lanes / 2>::Lanes low, high;
    halve<lanes, Value>(x, low, high);
    return sum_of<lanes / 2, Value>(low + high);
  }
}

// The largest lane, halves against halves, in registers.
template <int64_t lanes, class Value>
[[gnu::always_inline]] inline Value largest_lane(const typename Vector<Value, lanes>::Lanes& x) {
  if constexpr (lanes == 1) {
    return x[0];
  } else {
    typename Vector<Value, lanes / 2>::Lanes low, high;
    halve<lanes, Value>(x, low, high);
    return largest_lane<lanes / 2, Value>(low > high ? low : high);
  }
}

}  // namespace xformer::kernels
