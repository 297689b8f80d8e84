// Marks a function whose loops the compiler vectorises once for each instruction set; the loader picks. Only plain
// functions can be versioned, no templates; what they call is inlined (gnu::always_inline). The layer's flags (-O3
// -fno-trapping-math, CMakeLists.txt) make a selection a vector selection; an attribute here would come too late for
// what is inlined. Other compilers and processors get the plain version.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define XFORMER_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "avx2,fma", "default")))
#else
#define XFORMER_VECTORISED
#endif

namespace xformer::kernels {

// `lanes` numbers side by side, in as few registers as the instruction set has for them.
template <class Value, int64_t lanes>
struct Vector {
  typedef Value Lanes __attribute__((vector_size(lanes * sizeof(Value))));
};

}  // namespace xformer::kernels
