// Host memory for tensors: freed blocks are kept and reused, and every byte is counted.
//
// Why: at LRA's sizes a step on the CPU otherwise spends most of its time in page faults, because large blocks go back
// to the system after every use and come back as fresh, zeroed pages.
#pragma once

#include <cstdint>

namespace xformer {

struct MemoryUse {
  int64_t live_bytes = 0;       // in use by tensors now
  int64_t peak_bytes = 0;       // the most ever in use since the last reset
  int64_t reserved_bytes = 0;   // taken from the system and kept
  int64_t system_requests = 0;  // how often the system was asked, since the start
};

// Makes it LibTorch's CPU allocator. Idempotent; call before the first tensor.
void install_caching_allocator();
[[nodiscard]] MemoryUse host_memory();
void reset_host_peak();
// Gives all unused blocks back to the system (between models, never between steps).
void release_cached_memory();

// Of the process: peak resident bytes (getrusage) and minor page faults so far.
[[nodiscard]] int64_t peak_process_bytes();
[[nodiscard]] int64_t page_faults();

}  // namespace xformer
