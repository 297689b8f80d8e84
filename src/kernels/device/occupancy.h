// How many blocks of a program a multiprocessor holds at once: what hides the time that memory takes. No LibTorch here.
#pragma once

#include <algorithm>

#include "kernels/device/thread.h"

namespace xformer::kernels {

// What one has (CUDA C++ Programming Guide, "Compute Capabilities", and cuda_occupancy.h): registers in four parts,
// each of which gives them to whole warps, in units.
struct Multiprocessor {
  int64_t shared_bytes = 0;  // of all blocks together; of each the system takes some
  int64_t threads = 2048, blocks = 32, registers = 65536;
};
inline constexpr Multiprocessor kSm80{164 * 1024}, kSm90{228 * 1024};
inline constexpr int64_t kSystemSharedBytes = 1024;  // of a block

// Of blocks of so many threads, so many registers in each, and so much shared memory as the program asks for; 0: one
// does not fit.
[[nodiscard]] constexpr int64_t resident_blocks(const Multiprocessor& on, int64_t threads, int64_t registers,
                                                int64_t shared_bytes) {
  constexpr int64_t kParts = 4, kRegisterUnit = 256, kSharedUnit = 128;
  const auto whole = [](int64_t amount, int64_t unit) { return (amount + unit - 1) / unit * unit; };
  const int64_t warps = whole(threads, kWarp) / kWarp;
  const int64_t warps_of_part = on.registers / kParts / whole(registers * kWarp, kRegisterUnit);
  return std::min({on.blocks, on.threads / (warps * kWarp), warps_of_part * kParts / warps,
                   on.shared_bytes / (whole(shared_bytes, kSharedUnit) + kSystemSharedBytes)});
}

static_assert(resident_blocks(kSm80, kWarp, 32, 163 * 1024) == 1 &&
              resident_blocks(kSm80, kWarp, 32, 163 * 1024 + 1) == 0);

}  // namespace xformer::kernels
