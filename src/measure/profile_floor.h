// What the machine can do with the products of a step alone: the rate that its arithmetic is held against.
#pragma once

#include <functional>
#include <string>

#include "tensor/op_profiler.h"

namespace xformer::measure {

// Seconds of one product by itself, on operands of that layout which are there already: the least of several runs.
// Here and below a device that is no CPU keeps the time itself, with what is asked of it in its queue.
[[nodiscard]] double alone_seconds(const Product& product, const at::Device& device = at::kCPU);

// Bytes a second, read and written, of a copy of which source and target together are as large: the best of several
// runs on warm buffers, on the CPU by one thread or by all. What fits into a cache goes by faster than what does not.
[[nodiscard]] double copy_rate(int64_t bytes, const at::Device& device = at::kCPU);

// The most that the threads together reach with products in cache, as our own operators' tiles take them: the best of a
// few of their shapes.
struct Peak {
  double rate = 0;  // FLOPs a second, the sum of each thread's best, so that what else the machine does matters little
  int64_t rows = 0, columns = 0, inner = 0;
  std::string library = {};  // as kernels::products_run() names it
};
// Of float or bf16 factors; sums are float. kernels::products_run() begins anew.
[[nodiscard]] Peak product_peak(at::ScalarType factors);
// What a device reaches with LibTorch's product of two squares, in "fp32", "tf32", "bf16" or "fp16"; for its float
// products that precision holds from then on.
[[nodiscard]] Peak device_product_peak(const at::Device& device, const std::string& precision);

// Seconds of processor time while `work` runs: of the calling thread and of the process's others.
struct ProcessorSeconds {
  double own = 0, others = 0;
};
[[nodiscard]] ProcessorSeconds processor_seconds(const std::function<void()>& work);
// Seconds that a thread goes on spinning after a parallel region; they count as processor time.
[[nodiscard]] double spin_seconds();

}  // namespace xformer::measure
