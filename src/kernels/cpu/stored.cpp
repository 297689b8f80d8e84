#include "kernels/cpu/stored.h"

#include <bit>

#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

// A bf16 number is the upper half of the float that it stands for.
XFORMER_VECTORISED
void widen(int64_t rows, int64_t width, const c10::BFloat16* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const auto* __restrict in = reinterpret_cast<const uint16_t*>(from + r * from_stride);
    float* __restrict out = to + r * to_stride;
    for (int64_t i = 0; i < width; ++i) out[i] = std::bit_cast<float>(uint32_t{in[i]} << 16);
  }
}

// By bits, because LibTorch's rounding has a branch that is not vectorised.
XFORMER_VECTORISED
void narrow(int64_t rows, int64_t width, const float* from, int64_t from_stride, c10::BFloat16* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = from + r * from_stride;
    auto* __restrict out = reinterpret_cast<uint16_t*>(to + r * to_stride);
    for (int64_t i = 0; i < width; ++i) {
      const auto bits = std::bit_cast<uint32_t>(in[i]);
      const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
      out[i] = static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
    }
  }
}

}  // namespace xformer::kernels
