// What the machine can do with the products of a step alone: the rate that its arithmetic is held against.
#pragma once

#include <functional>

#include "tensor/op_profiler.h"

namespace xformer::measure {

// Seconds of one product by itself, on operands of that layout which are there already: the least of several runs.
[[nodiscard]] double alone_seconds(const Product& product);

// FLOPs a second of products small enough for the cache, one after the other on every thread: what the tiles of our own
// operators could reach. The sum of each thread's best, so that what else the machine does matters little.
inline constexpr int64_t kCacheSize = 128;  // rows, columns and inner length
[[nodiscard]] double in_cache_rate();

// Seconds of processor time while `work` runs: of the calling thread and of the process's others.
struct ProcessorSeconds {
  double own = 0, others = 0;
};
[[nodiscard]] ProcessorSeconds processor_seconds(const std::function<void()>& work);
// Seconds that a thread goes on spinning after a parallel region; they count as processor time.
[[nodiscard]] double spin_seconds();

}  // namespace xformer::measure
