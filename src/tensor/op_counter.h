// Counts what really ran: matrix-product FLOPs (1 multiply-add = 2), operator calls, values read back.
#pragma once

#include <cstdint>
#include <memory>

namespace xformer {

struct OpCounts {
  int64_t flops = 0;     // matmul and convolution terms only (attention-core 0.12)
  int64_t calls = 0;     // operator calls, all kinds
  int64_t reads = 0;     // of them those that bring a value or a size back to the host, which no captured step may
  int64_t gathered = 0;  // bytes of rows that operators of our own read, or added to, where a list says they lie
};

// For operators of our own: what their tiles multiplied. Counted by every counter that lives, from any thread.
void add_executed_flops(int64_t flops);
// And of rows that are read over and over by lists of places: what each reading takes (tensors are counted once
// anyway).
void add_gathered_bytes(int64_t bytes);

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
