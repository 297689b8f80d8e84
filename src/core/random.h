// Random numbers as pure functions: Philox 4x32-10 (Salmon et al., SC 2011) and seeds derived by name.
//
// Nothing here keeps a state that a checkpoint would have to store, but Stream, which is made afresh
// from its key wherever it is needed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace xformer {

using PhiloxBlock = std::array<uint32_t, 4>;

// All 64 bits. A device's compiler, left alone, multiplies the upper halves too, which are zero.
[[nodiscard]] constexpr uint64_t wide_product(uint32_t one, uint32_t other) {
#ifdef __CUDA_ARCH__
  uint64_t product = 0;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(one), "r"(other));
  return product;
#else
  return uint64_t{one} * other;
#endif
}

// The 128 bits at `counter` under `key`.
[[nodiscard]] constexpr PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  PhiloxBlock c{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = wide_product(0xD2511F53, c[0]), p1 = wide_product(0xCD9E8D57, c[2]);
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// A seed for one purpose ("order", "dropout", "init/encoder.layer0..."): FNV-1a of the name, mixed with
// the run's seed by Philox, so that neighbouring seeds and names are unrelated.
[[nodiscard]] constexpr uint64_t derive_seed(uint64_t seed, std::string_view purpose) {
  uint64_t name = 0xcbf29ce484222325;
  for (const char letter : purpose) name = (name ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  const PhiloxBlock block = philox(seed, name, 0x78666f726d6572);
  return (uint64_t{block[1]} << 32) | block[0];
}

// A sequence of numbers under (key, stream number).
class Stream {
 public:
  explicit Stream(uint64_t key, uint64_t number = 0) : key_(key), number_(number) {}

  uint32_t next_u32() {
    if (used_ == 4) {
      block_ = philox(key_, counter_++, number_);
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t next_u64() { return (uint64_t{next_u32()} << 32) | next_u32(); }
  // Uniform in [0, 1) with 53 bits.
  double next_unit() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  // Uniform in 0 .. bound - 1 without bias (rejection); bound >= 1.
  uint64_t next_below(uint64_t bound) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t value = next_u64();
    while (value >= limit) value = next_u64();
    return value % bound;
  }

 private:
  uint64_t key_, number_, counter_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace xformer
