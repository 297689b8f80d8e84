// What one thread of a device does: the eight elements of one Philox block. constexpr, so that nvcc takes it for the
// device as it is, and a test runs the same lines on the CPU.
#pragma once

#include "core/random.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

// Elements `begin` to `end` - 1 of the block; in and out point at element 0 of the block (before the tensor's memory
// where begin > 0; those are not touched).
template <class Math, class Value>
constexpr void drop_block(uint64_t key, uint64_t counter_high, uint64_t block, int begin, int end, uint32_t threshold,
                          const Value* in, Value* out) {
  const PhiloxBlock words = philox(key, block, counter_high);
  const Math scale = static_cast<Math>(dropout_scale(threshold));
  for (int lane = begin; lane < end; ++lane) {
    const uint32_t word = words[lane / 2];
    const uint32_t draw = lane % 2 == 1 ? word >> 16 : word & 0xFFFF;
    out[lane] =
        draw < threshold ? static_cast<Value>(Math(0)) : static_cast<Value>(static_cast<Math>(in[lane]) * scale);
  }
}

}  // namespace xformer::kernels
