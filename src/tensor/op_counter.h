// Counts what really ran: matrix-product FLOPs (1 multiply-add = 2), operator calls, values read back.
#pragma once

#include <cstdint>
#include <memory>

namespace xformer {

struct OpCounts {
  int64_t flops = 0;  // matmul and convolution terms only (attention-core 0.12)
  int64_t calls = 0;  // operator calls, all kinds
  int64_t reads = 0;  // of them those that bring a value or a size back to the host, which no captured step may
};

// For operators of our own: what their tiles multiplied. Counted by every counter that lives, from any thread.
void add_executed_flops(int64_t flops);

// Counts the operators of the calling thread while it lives (RecordFunction observer on mm, bmm, addmm, baddbmm, ...).
class OpCounter {
 public:
  OpCounter();
  ~OpCounter();
  OpCounter(const OpCounter&) = delete;
  OpCounter& operator=(const OpCounter&) = delete;
  [[nodiscard]] OpCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace xformer
